"""What must be light is light: measured in a process of its own, whatever the linter believes."""

from __future__ import annotations

import subprocess
import sys

import pytest

SEAM = ("api", "client", "config", "errors", "events", "checkpoint.catalogue", "commands.model_menu")
HEAVY = ("torch", "transformers", "textual", "numpy", "huggingface_hub", "gguf", "tokenizers")


@pytest.mark.parametrize(
    "module",
    [
        "app.cli.main",
        *(f"engine.{part}" for part in SEAM),
    ],
)
def test_importing_it_loads_nothing_heavy(module: str) -> None:
    script = f"import sys, {module}; print(*sorted(set({HEAVY!r}) & set(sys.modules)))"
    loaded = subprocess.run([sys.executable, "-P", "-c", script], capture_output=True, text=True, check=True).stdout
    assert loaded.split() == []


def test_the_policies_load_without_torch() -> None:
    modules = ", ".join(f"offload.policies.{kind}" for kind in ("eviction", "prefetch", "substitution"))
    script = f"import sys, {modules}; print('torch' in sys.modules)"
    said = subprocess.run([sys.executable, "-P", "-c", script], capture_output=True, text=True, check=True).stdout
    assert said.strip() == "False"


def test_names_and_codes_are_declared_once_and_reach_the_seam() -> None:
    from engine import config, events
    from offload.policies import eviction, prefetch
    from offload.residency import codes

    assert config.EVICTION_POLICIES is eviction.EVICTION_POLICIES
    assert config.PREFETCHERS is prefetch.PREFETCHERS
    defaults = config.EngineConfig()
    assert (defaults.policies.eviction, defaults.policies.prefetch) == ("history", "layers-ahead")
    shown = [events.HOST, events.RESIDENT, events.LOADING, events.IN_USE, events.SUBSTITUTE]
    assert shown == [codes.HOST, codes.RESIDENT, codes.LOADING, codes.IN_USE, codes.SUBSTITUTE] == list(range(5))


def test_the_whole_app_loads_without_torch() -> None:
    """Its modules are loaded one by one, lazy ones too."""
    script = (
        "import importlib, pkgutil, sys, app\n"
        "for module in pkgutil.walk_packages(app.__path__, 'app.'):\n"
        "    if not module.name.endswith('__main__'): importlib.import_module(module.name)\n"
        "print(*sorted({'torch', 'transformers'} & set(sys.modules)))"
    )
    loaded = subprocess.run([sys.executable, "-P", "-c", script], capture_output=True, text=True, check=True).stdout
    assert loaded.split() == []
