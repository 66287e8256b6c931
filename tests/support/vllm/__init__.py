"""The part of vLLM that the example batch_llm uses: an engine that answers with the prompt's words, in capitals.

The prompt "die once" ends the engine, as a fault of the GPU does, the first time that any engine sees it.
"""

from dataclasses import dataclass
from pathlib import Path

from vllm.v1.engine.exceptions import EngineDeadError


@dataclass
class SamplingParams:
    temperature: float
    max_tokens: int


@dataclass
class CompletionOutput:
    text: str
    token_ids: list
    finish_reason: str


@dataclass
class RequestOutput:
    prompt_token_ids: list
    outputs: list


class LLM:
    """Answers chats; ``model`` is a folder, which remembers the engines that died."""

    def __init__(self, model):
        self.died = Path(model, "died")

    def chat(self, messages, sampling_params, *, use_tqdm):
        prompts = [chat[-1]["content"] for chat in messages]
        assert prompts == sorted(prompts, key=len, reverse=True), "the longest first"
        if "die once" in prompts and not self.died.exists():
            self.died.touch()
            raise EngineDeadError()
        return [self._answer(prompt.split(), sampling_params.max_tokens) for prompt in prompts]

    def _answer(self, words, limit):
        answer = [word.upper() for word in words[:limit]]
        reason = "length" if len(words) > limit else "stop"
        return RequestOutput(words, [CompletionOutput(" ".join(answer), answer, reason)])
