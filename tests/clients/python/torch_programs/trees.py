"""trees.py: the graphs that torch.compile(mode="reduce-overhead") makes, which rewind their common pool."""
import emm
import emm.torch
import torch
from torch._inductor import config, cudagraph_trees
from torch._inductor.cudagraph_utils import PlaceholderInfo

emm.torch.use()
torch.cuda.init()
config.triton.fast_path_cudagraph_asserts = config.triton.slow_path_cudagraph_asserts = True
# PyTorch's own function is a kernel, and kernels do not run here.
torch._foreach_copy_ = lambda to, source: [each.copy_(of) for each, of in zip(to, source)]


def model_of_two(inputs):
    source = inputs.pop()
    middle = source.clone()
    result = middle.clone()
    del middle
    return [result, result.clone()]


def model_of_one(inputs):
    return [inputs.pop().clone().clone()]


def tensor(value):
    return torch.full((1000,), float(value)).to("cuda")


made = {}


def call(name, model, source):
    """Warms up, captures or replays, as PyTorch does."""
    if name in made:
        return made[name]([source])
    placeholder = PlaceholderInfo(name="source", stack_trace=None, users=[],
                                  mutating_use_stack_trace=None)
    made[name], result = cudagraph_trees.cudagraphify(
        model, [source], (), device_index=0, is_backward=False, is_inference=True,
        stack_traces=["first", "second"][:2 if model is model_of_two else 1],
        placeholders=(placeholder,))
    return result


for step in range(10):
    torch.compiler.cudagraph_mark_step_begin()
    one, two = call("first", model_of_two, tensor(step))
    others = [tensor(77) for _ in range(30)]
    # Two graphs follow the first in turn, so the pool is rewound to the end of the first.
    three, = call(f"second {step % 2}", model_of_one, two if step % 2 else one)
    assert one.cpu()[0] == two.cpu()[1] == three.cpu()[999] == step
    assert all(other.cpu()[0] == 77 for other in others)
    del one, two, three, others

cudagraph_trees.reset_cudagraph_trees()
made.clear()
torch.cuda.synchronize()
torch.cuda.empty_cache()
kept = [segment for segment in torch.cuda.memory._snapshot()["segments"]
        if tuple(segment["segment_pool_id"]) != (0, 0)]
assert not kept, kept
