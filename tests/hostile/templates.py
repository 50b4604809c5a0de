"""Chat templates that try to do something else than to render a conversation."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

_ESCAPES = (
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ self.__init__.__globals__ }}",
    "{{ cycler.__init__.__globals__.os.system('touch MARKER') }}",
    "{{ lipsum.__globals__['os'].popen('touch MARKER').read() }}",
    "{{ namespace.__init__.__globals__.os.system('touch MARKER') }}",
    "{{ raise_exception.__globals__ }}",
    "{{ raise_exception.__globals__['__builtins__']['open']('MARKER', 'w') }}",
    "{{ strftime_now.__globals__['__builtins__']['open']('MARKER', 'w') }}",
    "{{ messages.__class__.__base__ }}",
    "{{ ''.format.__self__ }}",
    "{{ '{0.__class__.__init__.__globals__}'.format(messages) }}",
    "{% set x = ''|attr('__class__') %}{{ x.__mro__ }}",
    "{{ (messages|map(attribute='__class__')|list)[0].__subclasses__() }}",
    "{% include 'config.json' %}",
    "{% import '/etc/passwd' as x %}",
    "{% extends 'base.html' %}",
    "{{ messages.append(1) }}{{ messages.clear() }}",
)
_PIECES = (
    "{% for m in messages %}",
    "{% endfor %}",
    "{{ m.content }}",
    "{{ m['role'] }}",
    "{% if add_generation_prompt %}",
    "{% endif %}",
    "{{",
    "}}",
    "{%",
    "{{ messages[100].content }}",
    "{{ 1 / 0 }}",
    "{{ undefined.thing }}",
    "{{ raise_exception('no') }}",
    "{{ 'a' * 3 }}",
    "{{ m | tojson }}",
    "{{ m | nofilter }}",
    "{% set x = namespace(a=1) %}",
    "{% generation %}",
    "w3 w4 ",
    "\x00",
    "\ufeff",
)


def _escape(random: Random, marker: str) -> str:
    return random.choice(_ESCAPES).replace("MARKER", marker) + "{{ messages[0].content }}"


def _pieces(random: Random, _: str) -> str:
    return "".join(random.choice(_PIECES) for _ in range(random.randint(1, 9)))


def _nested(random: Random, _: str) -> str:
    depth = random.choice((20, 200, 5000))
    return "{% if true %}" * depth + "w3" + "{% endif %}" * depth


def _long(random: Random, _: str) -> str:
    return "w3 " * random.choice((10_000, 1_000_000))


TEMPLATES: dict[str, Callable[[Random, str], str]] = {
    "an escape": _escape,
    "pieces of templates": _pieces,
    "a nested template": _nested,
    "a long template": _long,
}
ENDLESS = (
    "{% for i in range(10**9) %}{% endfor %}",
    "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
    "{{ 10 ** (10 ** 8) }}",
    "{{ 'a'.center(10 ** 10) }}",
    "{{ 'a' * 10 ** 10 }}",
    "{% set n = namespace(s='a') %}{% for i in range(60) %}{% set n.s = n.s + n.s %}{% endfor %}{{ n.s }}",
)
"""Templates that would take all the time or memory there is."""
