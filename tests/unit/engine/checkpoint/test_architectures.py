"""The table of architectures, held against the library it speaks of."""

from __future__ import annotations

from pathlib import Path

import transformers
from transformers.models.auto.configuration_auto import model_type_to_module_name
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from engine.checkpoint.architectures import EXPERTS_INTERFACE, NO_EXPERTS_INTERFACE
from tests.architectures.tiny import SUPPORTED, UNSUPPORTED

MODELS = Path(transformers.__file__).parent / "models"


def source_of(model_type: str) -> str:
    folder = MODELS / model_type_to_module_name(model_type)
    return "".join(path.read_text() for path in folder.glob("modeling_*.py"))


def test_the_table_says_what_the_library_has() -> None:
    sources = {name: source_of(name) for name in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES}
    marked = {name for name, source in sources.items() if "use_experts_implementation" in source}
    assert marked == EXPERTS_INTERFACE
    assert {name for name in sources.keys() - marked if "experts" in sources[name].lower()} == NO_EXPERTS_INTERFACE


def test_the_table_says_what_was_tried() -> None:
    assert SUPPORTED.keys() <= EXPERTS_INTERFACE
    assert not UNSUPPORTED.keys() & EXPERTS_INTERFACE
