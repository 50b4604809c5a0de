"""ggml's C interface by ctypes, from the shared object of the wheel `xllamacpp`.

The library aborts the process on a wrong shape and crashes on a wrong number: nothing here checks arguments. Use
`GraphBuilder`, which does. Pointers to ggml's structures are opaque: no field of them is read or written.
Source: the public headers ggml.h, ggml-alloc.h, ggml-backend.h and ggml-cpu.h of ggml 0.26.
"""

from __future__ import annotations

import ctypes as c
import functools
import importlib.metadata
import importlib.util
from pathlib import Path
from typing import Any

WHEEL, WHEEL_VERSION = "xllamacpp", "2026.10.11549"
"""The wheel that carries ggml, and the version this code is written for. ggml's interface changes between versions."""

_P, _I64, _SIZE, _INT, _FLOAT, _BOOL = c.c_void_p, c.c_int64, c.c_size_t, c.c_int, c.c_float, c.c_bool


class GgmlUnavailableError(Exception):
    """ggml cannot be used on this machine; the text says why, for a person."""


class InitParams(c.Structure):
    """`ggml_init_params`."""

    _fields_ = (("mem_size", _SIZE), ("mem_buffer", _P), ("no_alloc", _BOOL))


AbortCallback = c.CFUNCTYPE(_BOOL, _P)
"""`ggml_abort_callback`: true ends the running graph."""

_FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "ggml_version": (c.c_char_p, ()),
    "ggml_type_name": (c.c_char_p, (_INT,)),
    "ggml_blck_size": (_I64, (_INT,)),
    "ggml_type_size": (_SIZE, (_INT,)),
    "ggml_tensor_overhead": (_SIZE, ()),
    "ggml_graph_overhead_custom": (_SIZE, (_SIZE, _BOOL)),
    "ggml_quantize_chunk": (_SIZE, (_INT, _P, _P, _I64, _I64, _I64, _P)),
    "ggml_init": (_P, (InitParams,)),
    "ggml_free": (None, (_P,)),
    "ggml_new_tensor_1d": (_P, (_P, _INT, _I64)),
    "ggml_new_tensor_2d": (_P, (_P, _INT, _I64, _I64)),
    "ggml_new_tensor_3d": (_P, (_P, _INT, _I64, _I64, _I64)),
    "ggml_view_2d": (_P, (_P, _P, _I64, _I64, _SIZE, _SIZE)),
    "ggml_view_3d": (_P, (_P, _P, _I64, _I64, _I64, _SIZE, _SIZE, _SIZE)),
    "ggml_reshape_2d": (_P, (_P, _P, _I64, _I64)),
    "ggml_reshape_3d": (_P, (_P, _P, _I64, _I64, _I64)),
    "ggml_permute": (_P, (_P, _P, _INT, _INT, _INT, _INT)),
    "ggml_mul_mat": (_P, (_P, _P, _P)),
    "ggml_mul_mat_id": (_P, (_P, _P, _P, _P)),
    "ggml_mul": (_P, (_P, _P, _P)),
    "ggml_add": (_P, (_P, _P, _P)),
    "ggml_add_id": (_P, (_P, _P, _P, _P)),
    "ggml_div": (_P, (_P, _P, _P)),
    "ggml_sum_rows": (_P, (_P, _P)),
    "ggml_out_prod": (_P, (_P, _P, _P)),
    "ggml_scale": (_P, (_P, _P, _FLOAT)),
    "ggml_scale_bias": (_P, (_P, _P, _FLOAT, _FLOAT)),
    "ggml_sigmoid": (_P, (_P, _P)),
    "ggml_soft_max": (_P, (_P, _P)),
    "ggml_argsort": (_P, (_P, _P, _INT)),
    "ggml_rms_norm": (_P, (_P, _P, _FLOAT)),
    "ggml_rope_ext": (_P, (_P, _P, _P, _P, _INT, _INT, _INT, *([_FLOAT] * 6))),
    "ggml_set_rows": (_P, (_P, _P, _P, _P)),
    "ggml_get_rows": (_P, (_P, _P, _P)),
    "ggml_cont": (_P, (_P, _P)),
    "ggml_cpy": (_P, (_P, _P, _P)),
    "ggml_transpose": (_P, (_P, _P)),
    "ggml_repeat_4d": (_P, (_P, _P, _I64, _I64, _I64, _I64)),
    "ggml_silu": (_P, (_P, _P)),
    "ggml_softplus": (_P, (_P, _P)),
    "ggml_ssm_conv": (_P, (_P, _P, _P)),
    "ggml_gated_delta_net": (_P, (*([_P] * 7), _I64)),
    "ggml_concat": (_P, (_P, _P, _P, _INT)),
    "ggml_flash_attn_ext_add_sinks": (None, (_P, _P)),
    "ggml_flash_attn_ext": (_P, (_P, _P, _P, _P, _P, _FLOAT, _FLOAT, _FLOAT)),
    "ggml_swiglu_split": (_P, (_P, _P, _P)),
    "ggml_geglu_erf_split": (_P, (_P, _P, _P)),
    "ggml_swiglu_oai": (_P, (_P, _P, _P, _FLOAT, _FLOAT)),
    "ggml_new_graph_custom": (_P, (_P, _SIZE, _BOOL)),
    "ggml_build_forward_expand": (None, (_P, _P)),
    "ggml_graph_n_nodes": (_INT, (_P,)),
    "ggml_gallocr_new": (_P, (_P,)),
    "ggml_gallocr_free": (None, (_P,)),
    "ggml_gallocr_reserve": (_BOOL, (_P, _P)),
    "ggml_gallocr_reserve_n_size": (None, (_P, _P, _P, _P, _P)),
    "ggml_gallocr_alloc_graph": (_BOOL, (_P, _P)),
    "ggml_gallocr_get_buffer_size": (_SIZE, (_P, _INT)),
    "ggml_backend_cpu_init": (_P, ()),
    "ggml_backend_cpu_buffer_type": (_P, ()),
    "ggml_backend_cpu_buffer_from_ptr": (_P, (_P, _SIZE)),
    "ggml_backend_cpu_set_n_threads": (None, (_P, _INT)),
    "ggml_backend_cpu_set_abort_callback": (None, (_P, _P, _P)),
    "ggml_backend_tensor_alloc": (_INT, (_P, _P, _P)),
    "ggml_backend_graph_compute": (_INT, (_P, _P)),
    "ggml_backend_free": (None, (_P,)),
}


class Ggml:
    """The functions of `_FUNCTIONS` as attributes, without the prefix `ggml_`. They release the interpreter's lock."""

    def __init__(self, path: Path) -> None:
        """Raises GgmlUnavailableError."""
        self.path = path
        try:
            library = c.CDLL(str(path))
            for name, (result, arguments) in _FUNCTIONS.items():
                function = getattr(library, name)
                function.restype, function.argtypes = result, arguments
                setattr(self, name.removeprefix("ggml_"), function)
        except OSError as error:
            hint = " Install it: apt install libgomp1" if "libgomp" in str(error) else ""
            raise GgmlUnavailableError(f"{path.name} cannot be loaded ({error}).{hint}") from error
        except AttributeError as error:
            raise GgmlUnavailableError(f"{path.name} lacks a function ({error})") from error
        self.label = f"ggml {self.version().decode()} ({WHEEL} {WHEEL_VERSION})"
        """Version and wheel, for reports. (The wheel does not tell the commit.)"""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"ggml_{name} is not in the list of functions that are used")


@functools.cache
def library_path() -> Path:
    """The shared object of the installed wheel. Raises GgmlUnavailableError where it is missing or another version."""
    try:
        version = importlib.metadata.version(WHEEL)
    except importlib.metadata.PackageNotFoundError:
        raise GgmlUnavailableError(
            f"the package {WHEEL} is not installed: pip install {WHEEL}=={WHEEL_VERSION}"
        ) from None
    if version != WHEEL_VERSION:
        raise GgmlUnavailableError(
            f"{WHEEL} {version} is installed, and {WHEEL_VERSION} is needed: pip install {WHEEL}=={WHEEL_VERSION}"
        )
    spec = importlib.util.find_spec(WHEEL)
    folders = list(spec.submodule_search_locations or ()) if spec is not None else []
    found = [path for folder in folders for path in sorted(Path(folder).glob(f"{WHEEL}*.so"))]
    if not found:
        raise GgmlUnavailableError(f"{WHEEL} {version} holds no shared object for this system")
    return found[0]


@functools.cache
def load_library() -> Ggml:
    """The library, loaded once a process. Raises GgmlUnavailableError."""
    return Ggml(library_path())
