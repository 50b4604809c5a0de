"""What the field's terms on screen mean, one sentence each: for the help screen and for maximised panels."""

from __future__ import annotations

from collections.abc import Iterable
from textwrap import wrap

TERMS: dict[str, str] = {
    "EXACT": "the token ids that the same model held whole in memory would give",
    "APPROX": "a missed expert of low score may be replaced by one on the device",
    "routed": "experts that the router chose in decode: hits + late + misses + substituted",
    "hit": "the expert was on the device in time, from before or by a prefetch",
    "late": "its load had begun when it was needed, and was waited for",
    "miss": "its load began only when it was needed, and was waited for",
    "resident": "an expert that is on the device, in a slot; host: one that is not",
    "hot": "in use in a quarter of the last samples, and twice as often as the average expert",
    "depth": "how many experts are prefetched for a layer, at most",
    "useful": "a prefetched expert that was routed to before it was evicted; wasted: one that was not",
    "AES": "approximate expert substitution: an expert computed in place of a missed one, in APPROX only",
    "alpha": "how far below the cut a missed expert's score may be and still be replaced",
    "weight": "the share of the routing weight that substitutes carried",
    "TTFT": "time to first token",
    "TPOT": "time per output token, after the first",
    "x limit": "TPOT over the least that this machine allows: compute, or loads that no policy avoids",
    "lower bound": "Belady's: the fewest loads that any eviction policy could have",
    "budget": "the bytes that the engine may hold on the device, divided into parts before a model is loaded",
    "held": "the bytes that the engine's process really holds now",
    "link": "the way from where experts are stored to the device; its speed is measured, or emulated and labelled",
    "profile": "which experts a domain's prompts use; choosing the domain loads them beforehand",
    "KL": "Kullback-Leibler divergence between two models' next-token probabilities; 0: they are equal",
}


def explained(terms: Iterable[str], width: int) -> list[str]:
    """A sentence for each term, a key of `TERMS`; wrapped to `width` columns, its further lines indented."""
    return [line for term in terms for line in wrap(f"{term}: {TERMS[term]}", max(20, width), subsequent_indent="  ")]
