"""Where a program finds something else under emm: by case of the driver client and plugin ("": all), and why."""
KNOWN = {
    ("survivors", ""): "memory of cuMemAllocAsync ends with its stream's context",
    ("ranges", "pool:growth=segment"): "behind a block the driver tells of the segment",
    ("handles", "async"): "the driver gives no descriptor of memory of a pool",
    ("handles", "pool"): "the driver does not set CU_POINTER_ATTRIBUTE_SYNC_MEMOPS on memory of cuMemMap",
    ("pool-access", "passthrough"): "memory of cuMemAlloc follows cuCtxEnablePeerAccess alone",
    ("ipc", "async"): "async exports memory with ipc=1",
}


def why_different(case, plugin):
    """The reason, or "": the case is to find the same."""
    return KNOWN.get((case, "")) or KNOWN.get((case, plugin), "")
