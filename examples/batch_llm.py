"""Batch inference with a language model: vLLM answers the prompts of a file, one engine on each GPU.

python3 examples/batch_llm.py prompts.jsonl --model Qwen/Qwen2.5-0.5B-Instruct --output out/answers

Each line of the file is a JSON object with a text "prompt"; its other fields are kept beside the answer.
"""

import argparse
import os
import tempfile
import time
from pathlib import Path

import pyarrow.json
import pyarrow.parquet

import raysm


class Answers:
    """Answers a batch of prompts with the process's own engine."""

    def __init__(self, model, max_tokens):
        from vllm import LLM, SamplingParams

        # A folder or s3://… comes as the channel model.
        self.engine = LLM(model=os.environ.get("SM_CHANNEL_MODEL", model))
        self.sampling = SamplingParams(temperature=0, max_tokens=max_tokens)

    def __call__(self, batch):
        import ray
        from vllm.v1.engine.exceptions import EngineDeadError

        prompts = batch["prompt"]
        # The longest first, so that the engine ends the batch with short ones, and all at about the same time.
        order = sorted(range(len(prompts)), key=lambda row: -len(prompts[row]))
        chats = [[{"role": "user", "content": prompts[row]}] for row in order]
        begun_s = time.monotonic()
        try:
            outputs = self.engine.chat(chats, self.sampling, use_tqdm=False)
        except EngineDeadError as error:
            print(f"the engine of process {os.getpid()} died, and another starts: {error}", flush=True)
            # A dead engine cannot be used again. raysm starts another process, which makes an engine of its own,
            # and predicts this part again, up to three times.
            ray.actor.exit_actor()
        seconds = time.monotonic() - begun_s
        answers = [None] * len(prompts)
        for row, output in zip(order, outputs, strict=True):
            answers[row] = output.outputs[0]
        tokens = [len(answer.token_ids) for answer in answers]
        read = sum(len(output.prompt_token_ids) for output in outputs)
        print(
            f"{len(prompts)} prompts in {seconds:.1f} s: {sum(tokens) / seconds:,.0f} tokens/s generated, "
            f"{read / seconds:,.0f} tokens/s read",
            flush=True,
        )
        return {
            "answer": [answer.text for answer in answers],
            "tokens": tokens,
            "finish_reason": [answer.finish_reason for answer in answers],
        }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("prompts", help="a file of JSON lines")
    parser.add_argument("--model", required=True, help="a name on Hugging Face, a folder, or s3://…")
    parser.add_argument("--max-tokens", type=int, default=256)
    parser.add_argument("--batch-size", type=int, default=1000, help="prompts of one call and of one part")
    parser.add_argument("--instances", type=int, default=1)
    parser.add_argument("--output", default="out/answers")
    asked = parser.parse_args()
    table = pyarrow.json.read_json(asked.prompts)
    batch = raysm.Batch(
        Answers,
        channel="prompts",
        batch_size=asked.batch_size,
        # A part is what a dead engine or a lost instance costs.
        piece_rows=asked.batch_size,
        arguments={"model": asked.model, "max_tokens": asked.max_tokens},
        keep=[name for name in table.column_names if name not in ("file", "row")],
    )
    is_channel = asked.model.startswith("s3://") or Path(asked.model).is_dir()
    inputs = {"model": asked.model} if is_channel else {}
    with tempfile.TemporaryDirectory() as folder:
        # A Parquet file is divided at its row groups; a file of JSON lines would be one part.
        path = Path(folder, "prompts.parquet")
        pyarrow.parquet.write_table(table, path, row_group_size=asked.batch_size)
        job = raysm.submit(batch, inputs=inputs | {"prompts": path}, cluster=raysm.Cluster(count=asked.instances))
        job.logs(follow=True)
        result = job.result(to=asked.output)
    print(result)
    print(f"{sum(result.table()['tokens'].to_pylist()):,} tokens generated")


if __name__ == "__main__":
    main()
