"""Which share of an architecture's layers has its experts predicted by the router's short form."""

from __future__ import annotations

from engine.backends.offloaded_model import OffloadedModel
from engine.lookahead.feeds import find_router
from engine.lookahead.form_trial import form_of_router
from engine.lookahead.forms import Way
from tests.architectures.tiny import SUPPORTED

ALL = dict.fromkeys(SUPPORTED, (Way.SHORT, Way.SHORT, Way.SHORT))
TWO_LAYERS = {
    *("deepseek_v2", "deepseek_v3", "deepseek_v32", "glm_moe_dsa", "glm4_moe", "glm4_moe_lite", "ernie4_5_moe"),
    *("lfm2_moe", "dots1", "afmoe", "hy_v3", "exaone_moe"),
}
EXPECTED: dict[str, tuple[Way, ...]] = {
    **ALL,
    **dict.fromkeys(TWO_LAYERS, (Way.SHORT, Way.SHORT)),
    "nemotron_h": (Way.SHORT,),
    # The first layer looks its experts up by token id; the prompt's are known, the next token's are not.
    "deepseek_v4": (Way.NONE, Way.SHORT, Way.SHORT),
    # Its router normalises and scales its input itself.
    "gemma4_text": (Way.ASKED,) * 3,
}


def require_ways(name: str, engine: OffloadedModel) -> None:
    """What the loaded model does is what is expected of it, and what is told of it before any weight is read."""
    forms = engine.lookahead.forms()
    assert tuple(form.way for form in forms) == EXPECTED[name], forms
    assert all(form.near_tie_rate <= 0.1 for form in forms)
    assert all(bool(form.reason) == (form.way is not Way.SHORT) for form in forms)
    model = engine.loaded.model
    hidden_dim = int(model.config.get_text_config().hidden_size)
    told = [
        form_of_router(find_router(model, withheld.name), layer.geometry.num_experts, hidden_dim, model.dtype)
        for withheld, layer in zip(engine.loaded.modules, engine.layers, strict=True)
    ]
    assert [form.way for form in told] == [form.way for form in forms]
