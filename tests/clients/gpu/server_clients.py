#!/usr/bin/env python3
"""Two language models that take turns on one GPU, and sleep in between. Needs a GPU, PyTorch and transformers.

    server_clients.py FOLDER [--sleeps 50] [--runs 10] [--only WAY,...] [--list] [--rehearse]

Each way has two engines, processes with a model of random weights each and a KV cache, which are two pools. One engine is
awake at a time: it wakes, generates tokens, and sleeps; then it is the other's turn. The tokens and the bits of
the last logits are compared with those from before the first sleep. Each engine sleeps --sleeps times with vllm-backend and
--runs times in other ways; where it loads its weights from a file instead, five times. Prints seconds, the median and the slowest:
to sleep, to wake, and from the wake-up's begin to the first token. A way whose package is missing is skipped by name.

--rehearse: the same with a tiny model and no GPU, on which nothing sleeps.

Speed decides nothing; ends with 1 if tokens or bits differ, or less than 97 % of an engine's memory came back.
"""
import argparse
import contextlib
import dataclasses
import hashlib
import importlib.util
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

from asked_process import LONGEST, AskedProcess, Ended

HERE = pathlib.Path(__file__).resolve().parent
EMM = pathlib.Path(os.environ.get("EMM_LIBRARY", HERE.parents[2] / "build-gpu/lib/libemm.so.1")).parents[1] / "tools/emm/emm"
ENGINES = 2
SHARE = 0.97
RELOADS = 5
LARGE = {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 12, "num_attention_heads": 16,
         "num_key_value_heads": 8, "vocab_size": 32000, "tie_word_embeddings": False}
SMALL = {**LARGE, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "vocab_size": 512}
CACHED = 16384  # tokens that the cache holds
PROMPT = 64
TOKENS = 4


@dataclasses.dataclass(frozen=True)
class Way:
    name: str
    package: str
    of_emm: bool
    resume: tuple = ()  # emm's command that wakes it from outside


WAYS = {way.name: way for way in (
    Way("vllm-backend", "emm", True),
    Way("saver-interface", "emm", True),
    Way("outside", "emm", True, ("resume",)),
    Way("outside-keep", "emm", True, ("resume", "--keep-copy")),
    Way("torch_memory_saver", "torch_memory_saver", False),
    Way("reload", "torch", False))}


# --- an engine. It does what each line of its input names, and answers in one.


class Backend:
    """vLLM's way: the registry makes emm's class, and its allocator has a pool for each tag."""

    def __init__(self):
        sys.path.insert(0, str(HERE.parent / "python/stand_ins"))
        import vllm_stand_in
        vllm_stand_in.install()
        import emm.vllm
        emm.vllm.register()
        vllm_stand_in.WorkerBase(vllm_stand_in.config(), 0, 0, "")
        self.backend = vllm_stand_in.SleepModeBackendFactory.create_backend(vllm_stand_in.config().model_config)
        self.region = sys.modules["vllm.v1.worker.gpu_worker"].get_mem_allocator_instance().use_memory_pool

    def sleep(self):
        self.backend.suspend(1)

    def wake(self):
        self.backend.resume(["weights"])
        self.backend.resume(["kv_cache"])


class Saver:
    def __init__(self, module):
        self.saver = importlib.import_module(module).torch_memory_saver
        self.saver.hook_mode = "torch"
        self.saver.retain_cpu_backup = True

    def region(self, tag):
        return self.saver.region(tag=tag, enable_cpu_backup=tag == "weights")

    def sleep(self):
        self.saver.pause("weights")
        self.saver.pause("kv_cache")

    def wake(self):
        self.saver.resume("weights")
        self.saver.resume("kv_cache")


class Nothing:
    """No part of the program knows that it sleeps."""

    def region(self, tag):
        return contextlib.nullcontext()

    def sleep(self):
        pass

    wake = sleep


MEMORY = {"vllm-backend": Backend, "saver-interface": lambda: Saver("emm.torch_memory_saver"),
          "torch_memory_saver": lambda: Saver("torch_memory_saver")}


class Engine:
    def __init__(self, way, weights, rehearses):
        import torch
        import transformers
        self.torch, self.transformers = torch, transformers
        self.way, self.weights, self.device = way, weights, "cpu" if rehearses else "cuda"
        if not rehearses:
            torch.zeros(1, device="cuda")  # makes the device's context before the pools in it
        self.memory = (Nothing if rehearses else MEMORY.get(way, Nothing))()
        self.load()

    def load(self):
        read = self.transformers.AutoModelForCausalLM.from_pretrained(self.weights, dtype=self.torch.bfloat16)
        with self.memory.region("weights"):
            self.model = read.to(self.device).eval()
        config = self.model.config
        with self.memory.region("kv_cache"):
            self.cache = self.transformers.StaticCache(config=config, max_cache_len=CACHED)
            self.cache.early_initialization(1, config.num_key_value_heads, config.head_dim, self.torch.bfloat16,
                                            self.torch.device(self.device))
        self.return_unused()

    def return_unused(self):
        """Frees unused memory, so that each measurement begins with only the weights and the cache."""
        if self.device == "cuda":
            self.torch.cuda.synchronize()
            self.torch.cuda.empty_cache()

    def bytes(self):
        tensors = [*self.model.parameters(), *(each for layer in self.cache.layers for each in (layer.keys, layer.values))]
        return {"bytes": sum(tensor.nbytes for tensor in tensors)}

    def sleep(self):
        self.return_unused()
        if self.way == "reload":
            del self.model, self.cache
            self.return_unused()
        self.memory.sleep()
        return {}

    def wake(self):
        if self.way == "reload":
            self.load()
        self.memory.wake()
        return {}

    def generate(self):
        """The likeliest tokens after the prompt; when the first was there, and the bits of the last logits."""
        torch = self.torch
        with torch.inference_mode():
            self.cache.reset()
            fed, tokens, first = torch.arange(PROMPT, device=self.device)[None] % self.model.config.vocab_size, [], None
            for _ in range(TOKENS):
                logits = self.model(fed, past_key_values=self.cache).logits[:, -1]
                fed = logits.argmax(-1)[None]
                tokens.append(int(fed))
                first = first or time.monotonic()
        bits = hashlib.sha256(logits.float().cpu().numpy().tobytes()).hexdigest()
        return {"tokens": tokens, "bits": bits, "first": first}


def answer_lines(engine_of):
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # output of packages is no answer
    engine = engine_of()
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(getattr(engine, line.strip())()), file=answers, flush=True)


def write_weights(folder, rehearses):
    """A model of its own for each engine."""
    import torch
    import transformers
    config = transformers.LlamaConfig(**(SMALL if rehearses else LARGE))
    for number in range(ENGINES):
        torch.manual_seed(number)
        with torch.device("cpu" if rehearses else "cuda"):
            model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
        model.save_pretrained(folder / f"weights-{number}")


# --- the process that asks them in turn


class Asked(AskedProcess):
    """An engine, from outside."""

    def __init__(self, way, number, folder, rehearses):
        self.way, self.outside = way, bool(way.resume) and not rehearses
        prefix = (str(EMM), "run", "--pausable", "--plugin", "pool", "--") if self.outside else ()
        super().__init__([*prefix, sys.executable, "-B", str(pathlib.Path(__file__).resolve()),
                          str(folder), "--engine", way.name, str(folder / f"weights-{number}"),
                          *(["--rehearse"] if rehearses else [])], folder / f"server-{way.name}-{number}.log")
        self.good, self.sleeps, self.times = True, 0, {"sleep": [], "wake": [], "first": []}

    def begin(self):
        """Awake for the first time: what it says before any sleep."""
        self.answer()
        self.bytes = self.ask("bytes")["bytes"]
        self.said = self.ask("generate")
        self.change("sleep")

    def change(self, word):
        """Sleeps or wakes, by itself or by `emm pause` and `emm resume`."""
        begin = time.perf_counter()
        if self.outside:
            command = ("pause",) if word == "sleep" else self.way.resume
            done = subprocess.run([EMM, *command, str(self.process.pid)], text=True, capture_output=True, timeout=LONGEST,
                                  check=False)
            if done.returncode != 0:
                raise Ended(f"emm {' '.join(command)}: {done.stderr.strip()}")
        else:
            self.ask(word)
        self.times[word].append(time.perf_counter() - begin)
        self.sleeps += word == "sleep"

    def serve(self, free):
        """Wakes and generates. How many bytes of the device the wake-up took."""
        before, begin = free(), time.monotonic()
        self.change("wake")
        taken = before - free()
        said = self.ask("generate")
        self.times["first"].append(said["first"] - begin)
        self.good &= all(said[key] == self.said[key] for key in ("tokens", "bits"))
        return taken


def take_turns(engines, sleeps, free):
    """Each engine serves once after each of so many sleeps. The least share of an engine's bytes that a wake-up took:
    so much had been given back."""
    least = 1.0
    for turn in range(sleeps):
        for engine in engines:
            least = min(least, engine.serve(free) / engine.bytes)
            if turn + 1 < sleeps:
                engine.change("sleep")
    return least


def figures(times):
    return f"{statistics.median(times):.3f} s | {max(times):.3f} s"


def print_table(found, rehearses):
    print("\n| way | engines, sleeps each | tokens and bits | given back | sleep: median | slowest | wake: median | slowest "
          "| to the first token: median | slowest |\n|" + "---|" * 10)
    good = True
    for way, result in found.items():
        if isinstance(result, str):
            print(f"| {way} | {result} |" + " |" * 8)
            good &= not WAYS[way].of_emm
            continue
        engines, least = result
        equal = all(engine.good for engine in engines)
        times = {key: [each for engine in engines for each in engine.times[key]] for key in ("sleep", "wake", "first")}
        print(f"| {way} | {len(engines)}, {min(engine.sleeps for engine in engines)} | {'equal' if equal else 'DIFFERENT'} "
              f"| {'-' if rehearses else f'{100 * least:.1f} %'} | " + " | ".join(map(figures, times.values())) + " |")
        good &= equal and (rehearses or not WAYS[way].of_emm or least >= SHARE)
    return good


def device_free(rehearses):
    """Bytes, as the driver tells a process that holds none of them."""
    if rehearses:
        return lambda: 0
    import torch
    torch.cuda.init()
    return lambda: torch.cuda.mem_get_info()[0]


def wanted_ways(names):
    for name in names:
        if importlib.util.find_spec(WAYS[name].package) is None:
            print(f"skipped: {name}: {WAYS[name].package} is not installed")
        else:
            yield WAYS[name]


def run(ways, wish):
    """By way the engines and what came back, or why it ended. All start at once, and sleep until it is their turn."""
    found, started = {}, {}
    for way in ways:
        started[way] = [Asked(way, number, wish.folder, wish.rehearse) for number in range(ENGINES)]
    free = device_free(wish.rehearse)

    def tried(way, step):
        try:
            return step()
        except (Ended, OSError, subprocess.TimeoutExpired) as end:
            found[way.name] = str(end)
        return None

    for way, engines in started.items():
        for engine in engines:
            tried(way, engine.begin)
    for way, engines in started.items():
        sleeps = {"reload": RELOADS, "vllm-backend": wish.sleeps}.get(way.name, wish.runs)
        least = None if way.name in found else tried(way, lambda: take_turns(engines, sleeps, free))
        if way.name not in found:
            found[way.name] = (engines, least)
        for engine in engines:
            tried(way, engine.end)
        print(f"{way.name} is done", file=sys.stderr, flush=True)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--sleeps", type=int, default=50)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--only", help="ways, separated by commas")
    parser.add_argument("--list", action="store_true", help="print the names of the ways")
    parser.add_argument("--rehearse", action="store_true", help="a tiny model, without a GPU")
    parser.add_argument("--engine", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--write", action="store_true", help=argparse.SUPPRESS)
    wish = parser.parse_args()
    wish.folder = wish.folder.resolve()
    if wish.engine:
        return answer_lines(lambda: Engine(*wish.engine, wish.rehearse))
    if wish.write:
        return write_weights(wish.folder, wish.rehearse)
    names = wish.only.split(",") if wish.only else list(WAYS)
    if unknown := set(names) - set(WAYS):
        parser.error(f"--only: no way is called {', '.join(sorted(unknown))}")
    if wish.list:
        print(*names, sep="\n")
        return 0
    for package in "torch", "transformers":
        if importlib.util.find_spec(package) is None:
            print(f"skipped: {package} is not installed")
            return 77
    wish.folder.mkdir(parents=True, exist_ok=True)
    os.environ.update({"EMM_PLUGIN": "pool", "HF_HUB_OFFLINE": "1", "CUBLAS_WORKSPACE_CONFIG": ":4096:8"})
    subprocess.run([sys.executable, "-B", __file__, str(wish.folder), "--write", *(["--rehearse"] if wish.rehearse else [])],
                   check=True)
    found = run(list(wanted_ways(names)), wish)
    return 0 if print_table(found, wish.rehearse) else 1


if __name__ == "__main__":
    sys.exit(main())
