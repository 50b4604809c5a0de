"""Stores domain profiles in the user's data folder: one folder per model, one file per domain.

The same folder holds `eviction.json`: the eviction weights tuned for the model (see
`offload.policies.eviction.tuned_weights`).
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import platformdirs

from engine.checkpoint.fingerprint import bound_to
from engine.errors import ConfigError
from offload.errors import ProfileError, WeightsError
from offload.policies.eviction.tuned_weights import TunedWeights, load_tuned_weights
from offload.replay.profile import DomainProfile, load_profile

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")


def profiles_root() -> Path:
    """MOE_CHAT_HOME/data/profiles, or the user's data folder on this system."""
    home = os.environ.get("MOE_CHAT_HOME")
    return (Path(home) / "data" if home else platformdirs.user_data_path("moe-chat")) / "profiles"


def is_domain_name(name: str) -> bool:
    """Whether it can be a domain's: it is a part of file names."""
    return _NAME.fullmatch(name) is not None


class ProfileStore:
    """The stored profiles and tuned weights of one model."""

    def __init__(self, fingerprint: str) -> None:
        """`fingerprint`: of the model, see `engine.checkpoint.fingerprint`. What was kept under its earlier one is read
        where nothing newer is there, and deleted with it."""
        self.fingerprint = fingerprint
        self._bound_to = bound_to(fingerprint)
        self._folder, *self._earlier = (profiles_root() / name for name in self._bound_to)

    def path(self, domain: str) -> Path:
        """The file that a domain's profile is written to. Raises ConfigError when the name cannot be one."""
        if not is_domain_name(domain):
            raise ConfigError(
                f"{domain!r} cannot be a domain's name.", "Use small letters, digits, - and _, 40 characters at most."
            )
        return self._folder / f"{domain}.npz"

    def names(self) -> list[str]:
        """The domains that have a profile, damaged ones included."""
        return sorted({path.stem for folder in self._folders() for path in folder.glob("*.npz")})

    def _folders(self) -> list[Path]:
        return [self._folder, *self._earlier]

    def _kept(self, path: Path) -> list[Path]:
        """The files that are there of one that is written to `path`, the newest first."""
        return [place for folder in self._folders() if (place := folder / path.name).exists()]

    def load(self, domain: str) -> DomainProfile | None:
        """The profile, or None when there is none. Raises ProfileError when it is damaged or another model's."""
        kept = self._kept(self.path(domain))
        return load_profile(kept[0], self._bound_to) if kept else None

    def usable(self, domain: str) -> DomainProfile | None:
        """The profile, or None when there is none or it cannot be used."""
        try:
            return self.load(domain)
        except (ConfigError, ProfileError):
            return None

    def save(self, profile: DomainProfile) -> Path:
        """Writes a profile atomically, over an earlier one. Raises ProfileError when it cannot be written."""
        path = self.path(profile.domain)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            profile.save(path)
        except OSError as error:
            raise ProfileError(f"{path} cannot be written: {error.strerror}.", "Free some space, try again.") from error
        return path

    def delete(self, domain: str) -> None:
        """Deletes a profile. Raises ConfigError when there is none, ProfileError when it cannot be deleted."""
        kept = self._kept(self.path(domain))
        if not kept:
            known = ", ".join(self.names()) or "none"
            raise ConfigError(f"There is no profile {domain!r} for this model.", f"There are: {known}.")
        for path in kept:
            try:
                path.unlink()
            except OSError as error:
                raise ProfileError(f"{path} cannot be deleted: {error.strerror}.", "Delete it by hand.") from error

    @property
    def weights_path(self) -> Path:
        """The file of the model's tuned eviction weights."""
        return self._folder / "eviction.json"

    def load_weights(self) -> TunedWeights | None:
        """The tuned weights of this model, or None. Raises WeightsError when the file is damaged or another model's."""
        kept = self._kept(self.weights_path)
        return load_tuned_weights(kept[0], self._bound_to) if kept else None

    def save_weights(self, tuned: TunedWeights) -> None:
        """Writes tuned weights atomically, over earlier ones. Raises WeightsError when they cannot be written."""
        try:
            tuned.save(self.weights_path)
        except OSError as error:
            message = f"{self.weights_path} cannot be written: {error.strerror}."
            raise WeightsError(message, "Free some space, try again.") from error

    def delete_weights(self) -> bool:
        """Deletes the tuned weights; False: there were none. Raises WeightsError when the file cannot be deleted."""
        kept = self._kept(self.weights_path)
        for path in kept:
            try:
                path.unlink()
            except OSError as error:
                message = f"{path} cannot be deleted: {error.strerror}."
                raise WeightsError(message, "Delete it by hand.") from error
        return bool(kept)
