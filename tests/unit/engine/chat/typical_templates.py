"""Chat templates of the kinds that models bring, for the marks of `tokenizer_zoo`."""

from __future__ import annotations

from tests.unit.engine.byte_tokenizer import HARMONY, OPENED, QWEN

CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>' + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
TRIMMING = """{{- bos_token }}
{%- for message in messages %}
    {%- if loop.first and message.role == 'system' %}
        {{- '<|im_start|>system\n' + message.content | trim + '<|im_end|>' }}
    {%- else %}
        {{- '<|im_start|>' + message.role + '\n' + message['content'].strip() + '<|im_end|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}
"""
ALTERNATING = (
    "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
    "{% for message in messages %}"
    "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('must alternate') }}{% endif %}"
    "{% set role = 'model' if message['role'] == 'assistant' else message['role'] %}"
    "{{ '<|im_start|>' + role + '\n' + message['content'] | trim + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{'<|im_start|>model\n'}}{% endif %}"
)
SPLITTING = """{%- set ns = namespace(last=-1, found=false) %}
{%- for m in messages %}{%- if m.role == 'user' %}{%- set ns.last = loop.index0 %}{%- endif %}{%- endfor %}
{%- for m in messages %}
    {%- set content = m.content if m.content is string else '' %}
    {%- if m.role == 'assistant' %}
        {%- set thoughts = '' %}
        {%- if m.reasoning_content is string %}
            {%- set thoughts = m.reasoning_content %}
        {%- elif '</think>' in content %}
            {%- set thoughts = content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last and thoughts %}
            {{- '<|im_start|>assistant\n<think>\n' + thoughts.strip('\n') + '\n</think>\n\n' + content }}
        {%- else %}
            {{- '<|im_start|>assistant\n' + content }}
        {%- endif %}
        {{- '<|im_end|>\n' }}
    {%- else %}
        {{- '<|im_start|>' + m.role + '\n' + content + '<|im_end|>\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\n\n</think>\n\n' }}{%- endif %}
{%- endif %}
"""
PARTS = """{%- macro text_of(content) -%}
    {%- for part in content %}{%- if part.type == 'text' %}{{ part.text }}{%- endif %}{%- endfor %}
{%- endmacro %}
{%- for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}{{ text_of(m.content) }}{{ '<|im_end|>\n' }}{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{%- endif %}
"""
EITHER = """{%- for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}
    {%- if m.content is string %}{{ m.content }}
    {%- else %}{%- for part in m.content %}{{ part.text }}{%- endfor %}{%- endif %}{{ '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{%- endif %}
"""
QUOTING = (
    "{% for m in messages %}<|im_start|>{{ m.role | upper }} {{ m.content | tojson }}<|im_end|>{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>A {% endif %}"
)
ESCAPING = QUOTING.replace("tojson", "tojson(ensure_ascii=true)")
SHORTENING = CHATML.replace("m['content']", "m['content'][:40]")
JOINING = CHATML.replace("m['content']", "m['content'] | replace('!', '')")
WITH_TAGS = (
    "{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{% set word = 'w' %}{{ m.content }}"
    "{% endgeneration %}{{ word }}{% else %}[{{ m.role }}] {{ m.content }}\n{% endif %}"
    "{% if loop.index > 4 %}{% break %}{% endif %}{% endfor %}{% if add_generation_prompt %}> {% endif %}"
)
USING = (
    "{% set ns = namespace(n=0) %}{% set d = dict(a=1, b=[1, 2]) %}{{ d | tojson(indent=2) }}"
    "{{ dict.fromkeys('ab', 1) }}{{ strftime_now('%Y') | length }}{{ tools is none }}{{ documents is none }}"
    "{{ undefined_name is defined }}"
    "{% for m in messages %}{% set ns.n = ns.n + 1 %}{{ ns.n }}{{ m | tojson }}{{ m.items() | list }}{% endfor %}"
    "{{ messages | map(attribute='role') | join(',') }}{{ eos_token }}{{ bos_token }}{{ add_generation_prompt }}\n"
)

TYPICAL = {
    "chatml": CHATML,
    "trimming": TRIMMING,
    "alternating": ALTERNATING,
    "splitting": SPLITTING,
    "parts": PARTS,
    "either": EITHER,
    "quoting": QUOTING,
    "escaping": ESCAPING,
    "shortening": SHORTENING,
    "joining": JOINING,
    "with tags": WITH_TAGS,
    "using": USING,
    "qwen": QWEN,
    "opened": OPENED,
    "harmony": HARMONY,
}
CONVERSATIONAL = [name for name in TYPICAL if name not in ("using", "with tags", "harmony", "opened", "qwen")]
"""Those that write `<|im_start|>` before a message and `<|im_end|>` after it."""
