"""limit.py GIB [DEVICES]: PyTorch on GPUs of so many GiB: what it, NVML and a failing allocation say of each.

What the program has on one device it keeps while it asks of the next.
"""
import ctypes
import sys

import torch

GIB = 1 << 30


class NvmlMemory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


def nvml_total(number):
    nvml = ctypes.CDLL("libnvidia-ml.so.1")
    device, memory = ctypes.c_void_p(), NvmlMemory()
    uuid = f"GPU-{torch.cuda.get_device_properties(number).uuid}".encode()
    for done in (nvml.nvmlInit_v2(), nvml.nvmlDeviceGetHandleByUUID(uuid, ctypes.byref(device)),
                 nvml.nvmlDeviceGetMemoryInfo(device, ctypes.byref(memory))):
        if done:
            sys.exit(f"NVML: error {done}")
    return memory.total, memory.free


def look_at(number, wanted, wrong):
    """Fills the device. Gives what it has there, and adds to `wrong`."""
    def expect(what, found, least, most):
        print(f"{what}: {found / GIB:.2f} GiB")
        if not least <= found <= most:
            wrong.append(f"{what}: expected {least / GIB:.2f} to {most / GIB:.2f} GiB, found {found / GIB:.2f}")

    expect("get_device_properties", torch.cuda.get_device_properties(number).total_memory, wanted, wanted)
    expect("NVML before a context", nvml_total(number)[0], wanted, wanted)
    blocks = [torch.empty(GIB // 4, dtype=torch.uint8, device=f"cuda:{number}")]
    expect("mem_get_info", torch.cuda.mem_get_info(number)[1], wanted, wanted)
    expect("NVML", nvml_total(number)[0], wanted, wanted)
    try:
        for _ in range(wanted // GIB * 8):
            blocks.append(torch.empty(GIB // 4, dtype=torch.uint8, device=f"cuda:{number}"))
        wrong.append("nothing failed")
    except torch.OutOfMemoryError as error:
        print("torch.OutOfMemoryError:", str(error).split(". ", maxsplit=1)[0])
    expect("given before that", len(blocks) * GIB // 4, wanted * 15 // 16, wanted)
    expect("free, says mem_get_info", torch.cuda.mem_get_info(number)[0], 0, wanted // 16)
    expect("free, says NVML", nvml_total(number)[1], 0, wanted // 16)
    return blocks


def main():
    wanted, wrong, kept = int(sys.argv[1]) * GIB, [], []
    for number in range(int(sys.argv[2]) if len(sys.argv) > 2 else 1):
        kept.append(look_at(number, wanted, wrong))
    if wrong:
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main()
