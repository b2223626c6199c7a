"""Chat templates of the families that are supported, written after their published formats, and what each renders."""

from typing import Final

CHATML: Final = (
    "{%- for message in messages %}"
    "{%- if loop.first and message.role != 'system' %}{{ '<|im_start|>system\\nBe helpful.<|im_end|>\\n' }}{% endif %}"
    "{{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)

# Renders old replies without their reasoning, and closes an empty one when thinking is off.
QWEN3: Final = (
    "{%- for message in messages %}"
    "{%- set text = message.content %}"
    "{%- if message.role == 'assistant' %}{% set text = text.split('</think>')[-1].lstrip('\\n') %}"
    "{%- if loop.last %}{% set text = '<think>\\n\\n</think>\\n\\n' + text %}{% endif %}{% endif %}"
    "{{ '<|im_start|>' + message.role + '\\n' + text + '<|im_end|>\\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}"
    "{%- if enable_thinking is defined and enable_thinking is false %}{{ '<think>\\n\\n</think>\\n\\n' }}{% endif %}"
    "{%- endif %}"
)

# Trims every message and names a date where it can.
LLAMA3: Final = (
    "{{- bos_token }}"
    "{%- if strftime_now is defined %}{% set day = strftime_now('%d %b %Y') %}{% else %}{% set day = '26 Jul 2024' %}"
    "{% endif %}"
    "{%- if messages[0].role == 'system' %}{% set system = messages[0].content | trim %}{% set rest = messages[1:] %}"
    "{%- else %}{% set system = '' %}{% set rest = messages %}{% endif %}"
    "{{- '<|start_header_id|>system<|end_header_id|>\\n\\nToday Date: ' + day + '\\n\\n' + system + '<|eot_id|>' }}"
    "{%- for message in rest %}"
    "{{- '<|start_header_id|>' + message.role + '<|end_header_id|>\\n\\n' + message.content | trim + '<|eot_id|>' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}"
)

_GEMMA_TURNS: Final = (
    "{%- for message in rest %}"
    "{%- if (message.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant') }}{% endif %}"
    "{%- set role = 'model' if message.role == 'assistant' else message.role %}"
    "{{ '<start_of_turn>' + role + '\\n' + (first if loop.first else '') + message.content | trim }}"
    "{{ '<end_of_turn>\\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}"
)

# Has no system role at all.
GEMMA2: Final = (
    "{{ bos_token }}{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "{% set rest = messages %}{% set first = '' %}" + _GEMMA_TURNS
)

# Folds the system text into the first message itself.
GEMMA3: Final = (
    "{{ bos_token }}{% if messages[0].role == 'system' %}{% set first = messages[0].content + '\\n\\n' %}"
    "{% set rest = messages[1:] %}{% else %}{% set first = '' %}{% set rest = messages %}{% endif %}" + _GEMMA_TURNS
)

# No request for a reply, strict alternation, and the system text in front of the *last* user message.
MISTRAL: Final = (
    "{%- if messages[0].role == 'system' %}{% set system = messages[0].content %}{% set rest = messages[1:] %}"
    "{%- else %}{% set rest = messages %}{% endif %}{{ bos_token }}"
    "{%- for message in rest %}"
    "{%- if (message.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('After the optional system message, roles must alternate') }}{% endif %}"
    "{%- if message.role == 'user' %}"
    "{%- if loop.last and system is defined %}{{ '[INST] ' + system + '\\n\\n' + message.content + '[/INST]' }}"
    "{%- else %}{{ '[INST] ' + message.content + '[/INST]' }}{% endif %}"
    "{%- else %}{{ ' ' + message.content + eos_token }}{% endif %}"
    "{%- endfor %}"
)

PHI: Final = (
    "{% for message in messages %}{{ '<|' + message.role + '|>\\n' + message.content + '<|end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% else %}{{ eos_token }}{% endif %}"
)

# Opens the model's reasoning itself.
THINKER: Final = (
    "{{ bos_token }}{% for message in messages %}{{ '<|' + message.role + '|>' + message.content + '<|end|>' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|><think>\\n' }}{% endif %}"
)

TEMPLATES: Final = {
    "chatml": CHATML,
    "qwen3": QWEN3,
    "llama-3": LLAMA3,
    "gemma-2": GEMMA2,
    "gemma-3": GEMMA3,
    "mistral": MISTRAL,
    "phi": PHI,
    "thinker": THINKER,
}
