"""Templates that would run on are stopped: by time, memory, output, the user, and the end of the process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from time import monotonic

import psutil
import pytest

from engine.chat.template_renderer import RenderLimits, TemplateLimitExceeded, TemplateRefused, TemplateRenderer
from offload.errors import WaitCancelled

ENDLESS = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
POWER = "{{ 10 ** (10 ** 8) }}"


@pytest.fixture
def renderer() -> Iterator[TemplateRenderer]:
    renderer = TemplateRenderer(RenderLimits(seconds=1.0))
    yield renderer
    renderer.close()


def is_there(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def test_a_template_is_rendered(renderer: TemplateRenderer) -> None:
    assert renderer.render("{{ a }} {{ b | tojson }}", {"a": "é\ud800🙂", "b": [1, None]}) == "é\ud800🙂 [1, null]"
    pid = renderer.pid
    assert renderer.render("{{ a }}", {"a": "y" * 3_000_000}) == "y" * 3_000_000
    with pytest.raises(TemplateRefused, match="not this"):
        renderer.render("{{ raise_exception('not this') }}", {})
    assert renderer.pid == pid


@pytest.mark.parametrize(
    ("template", "limit"),
    [
        (ENDLESS, "takes more than 1 s"),
        (POWER, "takes more than 1 s"),
        ("{% set x = 10 ** (10 ** 8) %}", "takes more than 1 s"),
        (
            "{% macro f() %}{{ f() }}{{ f() }}{% endmacro %}{% for i in range(99999) %}{{ i ** 9999 % 7 }}{% endfor %}",
            "takes",
        ),
        ("{{ 'x'.center(10 ** 10) }}", "256 MiB of memory|more than 1 s"),
        ("{{ '%9999999999d' % 3 }}", "256 MiB of memory"),
        ("{{ [0] * 10 ** 9 }}", "256 MiB of memory|more than 1 s"),
        (
            "{% set ns = namespace(s='xy') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
            "256 MiB of memory|more than 1 s",  # whichever a busy machine comes to first
        ),
        ("{% for i in range(99999) %}{{ 'x' * 1000 }}{% endfor %}", "writes more than 4.0 MiB|more than 1 s"),
        ("{{ 'x' * 5000000 }}", "writes more than 4.0 MiB"),
        ("x" * 5_000_000, "has more than 4.0 MiB"),
    ],
)
def test_a_template_that_runs_on_is_stopped(renderer: TemplateRenderer, template: str, limit: str) -> None:
    began_s = monotonic()
    with pytest.raises(TemplateLimitExceeded, match=limit):
        renderer.render(template, {})
    assert monotonic() - began_s < 30
    assert renderer.render("{{ 1 + 1 }}", {}) == "2"


@pytest.mark.parametrize("template", ["{{" + "(" * 30000 + "1" + ")" * 30000 + "}}", "{{ range(10 ** 9) | list }}"])
def test_what_jinja_stops_itself(renderer: TemplateRenderer, template: str) -> None:
    with pytest.raises(TemplateRefused):
        renderer.render(template, {})


@pytest.mark.parametrize("template", [ENDLESS, POWER])
def test_the_user_stops_a_rendering(template: str) -> None:
    renderer = TemplateRenderer(RenderLimits(seconds=100))
    renderer.render("", {})
    pid, stops = renderer.pid, threading.Event()
    assert pid is not None
    threading.Timer(0.1, stops.set).start()
    with pytest.raises(WaitCancelled):
        renderer.render(template, {}, stops.is_set)
    assert not is_there(pid)
    assert renderer.render("{{ 1 }}", {}) == "1"
    renderer.close()


def test_a_process_that_was_killed_is_started_again(renderer: TemplateRenderer) -> None:
    renderer.render("", {})
    pid = renderer.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    assert renderer.render("{{ 2 }}", {}) == "2"
    assert renderer.pid != pid


def test_started_by_a_thread_that_ended(renderer: TemplateRenderer) -> None:
    found: list[str] = []
    for number in range(2):
        thread = threading.Thread(target=lambda number=number: found.append(renderer.render("{{ n }}", {"n": number})))
        thread.start()
        thread.join()
    assert [*found, renderer.render("{{ 2 }}", {})] == ["0", "1", "2"]


def test_it_is_small_and_ends_with_its_parent() -> None:
    root = Path(__file__).parents[4]
    program = (
        "from engine.chat.template_renderer import shared_renderer as r\n"
        "r().render('', {}); print(r().pid, flush=True)\n"
        f"r().render({POWER!r}, {{}}, lambda: False)"
    )
    environment = {**os.environ, "PYTHONPATH": str(root)}
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, env=environment) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        assert child.memory_full_info().uss < 40 << 20
        parent.kill()
    child.wait(timeout=10)


def test_the_process_loads_neither_torch_nor_transformers() -> None:
    program = (
        "import sys, engine.chat.template_process\n"
        "sys.exit(bool({'torch', 'transformers', 'tokenizers', 'numpy', 'textual'} & set(sys.modules)))"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[4])}
    assert subprocess.run([sys.executable, "-c", program], env=environment, check=False).returncode == 0
