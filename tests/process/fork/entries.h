// Every exported function of libemm and libemm-bridge, called with arguments that would succeed in
// the parent.
#pragma once

#include "../../parts/sized.h"

#include <emm/array.h>
#include <emm/emm.h>

#include <string>
#include <vector>

// The objects that the parent has made before the fork.
struct Things {
    emm_context *context = nullptr;
    emm_deviceptr ptr = 0;
    void *host = nullptr;
    emm_memory *memory = nullptr;
    emm_memory *view = nullptr;
    void *page = nullptr; // the caller's own, and page-aligned
    emm_ipc_handle handle = {};
};

struct Entry {
    const char *name;
    bool (*is_refused)(const Things &things); // the answer is the one for a forked child
    const char *allowed = nullptr;            // the reason why it works there instead
};

const std::vector<Entry> &entries();        // of libemm
const std::vector<Entry> &bridge_entries(); // of libemm-bridge

// Names that only the file or only the table has.
std::vector<std::string> differences(const std::vector<Entry> &table, const char *list);

constexpr size_t some_bytes = 64 << 10;
