#include "options.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace emm::pool {

const emm_option option_list[] = {
    {"max", nullptr,
     "The most device memory to take from the driver, at least 2MiB; no limit unless given.",
     EMM_OPTION_SIZE, EMM_OPTION_CHANGES},
    {"host_max", nullptr,
     "The most pinned host memory to take, at least 2MiB; no limit unless given.", EMM_OPTION_SIZE,
     0},
    {"host_node", "any|nearest",
     "Where pinned host memory lies: nearest, on the NUMA node that is nearest to the device, "
     "while that node has room.",
     EMM_OPTION_CHOICE, 0},
    {"initial", "0", "Device memory to take at once, before the first request.", EMM_OPTION_SIZE,
     0},
    {"spill", "0",
     "With growth=vmm, the most host memory, at least 2MiB, to use when the device, its limit "
     "(EMM_LIMIT) or max is exhausted. It has ordinary addresses and is slower.",
     EMM_OPTION_SIZE, 0},
    {"release_threshold", nullptr,
     "Idle memory beyond this goes back to the driver as it is freed; unless given, only a trim or "
     "exhaustion returns it.",
     EMM_OPTION_SIZE, EMM_OPTION_CHANGES},
    {"growth", "auto|vmm|segment",
     "How the pool grows: vmm, by pieces of memory behind reserved addresses, which move where a "
     "large block needs them; segment, by cuMemAlloc, for programs that pass addresses to "
     "cuIpcGetMemHandle or call cuCtxEnablePeerAccess themselves. auto: vmm where the device has "
     "virtual memory management and can share such memory by descriptor, otherwise, and with "
     "ipc=dedicated, segment.",
     EMM_OPTION_CHOICE, 0},
    {"slack", "0.125",
     "With growth=vmm, how much memory may lie idle to save driver calls, as a share of the peak; "
     "0: memory moves whenever that saves memory.",
     EMM_OPTION_NUMBER, EMM_OPTION_CHANGES},
    {"places", "8",
     "With growth=vmm, how many addresses a piece of memory may have at once. Several let a stream "
     "reuse its freed memory at other addresses before its work ends; 1 is for programs whose "
     "kernels run beside the work that they depend on.",
     EMM_OPTION_COUNT, 0},
    {"rdma", "1",
     "With growth=vmm, whether network cards may access the memory directly (GPUDirect RDMA), "
     "where the device supports it. 0 is for MPS clients with locality domains; 1 would not "
     "localize their memory.",
     EMM_OPTION_FLAG, 0},
    {"when_paused", "fail|wait",
     "What an allocation does while the pool is paused (emm_context_pause): fail, or wait for the "
     "resume.",
     EMM_OPTION_CHOICE, 0},
    {"segment", "0", "The least to ask the driver for at a time; 0 lets the pool choose.",
     EMM_OPTION_SIZE, 0},
    {"ipc", "shared|dedicated",
     "What another process sees of an export: shared, the whole segment with other allocations; "
     "dedicated, only the allocation, in a segment of its own.",
     EMM_OPTION_CHOICE, 0},
    {"dedicated_from", "1MiB",
     "With ipc=dedicated, the least allocation that has a segment (a multiple of 2 MiB) of its "
     "own; smaller ones cannot be exported. At least 64 KiB.",
     EMM_OPTION_SIZE, 0},
    {nullptr, nullptr, nullptr, 0, 0}};

namespace {

constexpr uint64_t least_dedicated = 64 << 10; // larger than any slot
constexpr uint64_t least_limit = 2 << 20;      // the unit in which the driver hands out memory
constexpr double most_slack = 1;
constexpr uint64_t most_places = 64; // a move looks at each place

void read_size(const char *const *texts, const char *name, uint64_t &value) {
    const char *text = emm_option_text(option_list, texts, name);
    if (text && !emm_parse_size(text, &value)) {
        char sentence[160];
        snprintf(sentence, sizeof sentence, "pool: option %s is '%.40s', expected a size like 4GiB",
                 name, text);
        throw PluginError(EMM_E_PLUGIN_SPEC, 0, sentence);
    }
}

[[noreturn]] void refuse(const char *const *texts, const char *name, const std::string &expected) {
    const std::string text = std::string("pool: option ") + name + ": expected " + expected +
                             ", found " + emm_option_text(option_list, texts, name);
    throw PluginError(EMM_E_PLUGIN_SPEC, 0, text.c_str());
}

// A lower limit would serve nothing.
void expect_at_least(const char *const *texts, const char *name, uint64_t least, uint64_t value) {
    if (value < least) {
        refuse(texts, name,
               "at least " + (least >> 20 ? std::to_string(least >> 20) + "MiB"
                                          : std::to_string(least >> 10) + "KiB"));
    }
}

// Rounded up to whole pieces of the driver's unit, the value must fit.
void expect_at_most(const char *const *texts, const char *name, uint64_t max, uint64_t value) {
    if (value > max / least_limit * least_limit) {
        refuse(texts, name,
               std::string("no more than fits into max, which is ") +
                   emm_option_text(option_list, texts, "max") + ", in pieces of 2MiB");
    }
}

} // namespace

Options::Options(const char *const *texts) {
    read_size(texts, "max", max);
    read_size(texts, "host_max", host_max);
    read_size(texts, "initial", initial);
    read_size(texts, "release_threshold", release_threshold);
    read_size(texts, "segment", segment);
    read_size(texts, "spill", spill);
    read_growth(texts);
    read_ipc(texts);
    const char *paused = emm_option_text(option_list, texts, "when_paused");
    const char *node = emm_option_text(option_list, texts, "host_node");
    nearest_host_node = node && strcmp(node, "nearest") == 0;
    waits_when_paused = paused && strcmp(paused, "wait") == 0;
    expect_at_least(texts, "max", least_limit, max);
    expect_at_least(texts, "host_max", least_limit, host_max);
    expect_at_most(texts, "initial", max, initial);
    expect_at_least(texts, "spill", least_limit, spill > 0 ? spill : least_limit);
    if (spill > 0 && growth == Growth::segments) {
        throw PluginError(EMM_E_PLUGIN_SPEC, 0,
                          dedicated
                              ? "pool: option spill: expected growth=vmm, found ipc=dedicated, "
                                "whose memory cuMemAlloc takes from the device"
                              : "pool: option spill: expected growth=vmm, found "
                                "growth=segment, whose memory cuMemAlloc takes from the device");
    }
    for (size_t i = 0; option_list[i].name; i++) {
        texts_.push_back(texts[i] ? std::optional<std::string>(texts[i]) : std::nullopt);
    }
}

Options Options::with(const char *key, const char *text) const {
    std::vector<const char *> texts;
    for (size_t i = 0; i < texts_.size(); i++) {
        const char *const present = texts_[i] ? texts_[i]->c_str() : nullptr;
        texts.push_back(strcmp(option_list[i].name, key) == 0 ? text : present);
    }
    return Options(texts.data());
}

void Options::change_to(Options &changed) {
    max = changed.max;
    release_threshold = changed.release_threshold;
    slack = changed.slack;
    texts_.swap(changed.texts_);
}

void Options::read_growth(const char *const *texts) {
    const char *word = emm_option_text(option_list, texts, "growth");
    growth = !word || strcmp(word, "auto") == 0 ? Growth::automatic
             : strcmp(word, "vmm") == 0         ? Growth::pages
                                                : Growth::segments;
    if (const char *text = emm_option_text(option_list, texts, "slack")) {
        slack = std::strtod(text, nullptr); // the host has checked that it is a number
    }
    const char *const reaches = emm_option_text(option_list, texts, "rdma");
    const char *const at = emm_option_text(option_list, texts, "places");
    places = at ? strtoull(at, nullptr, 10) : places;
    rdma = !reaches || reaches[0] == '1';
    if (places < 1 || places > most_places) {
        refuse(texts, "places", "a number from 1 to 64");
    }
    if (!(slack <= most_slack)) {
        refuse(texts, "slack", "a part of the peak between 0 and 1, such as 0.125");
    }
}

void Options::read_ipc(const char *const *texts) {
    const char *ipc = emm_option_text(option_list, texts, "ipc");
    dedicated = ipc && strcmp(ipc, "dedicated") == 0;
    uint64_t from = 1 << 20;
    read_size(texts, "dedicated_from", from);
    expect_at_least(texts, "dedicated_from", least_dedicated, from);
    if (dedicated && growth == Growth::pages) {
        throw PluginError(EMM_E_PLUGIN_SPEC, 0,
                          "pool: option ipc=dedicated: expected growth=segment, found growth=vmm, "
                          "which has no segments to dedicate");
    }
    if (dedicated) {
        growth = Growth::segments;
        dedicated_from = from;
    }
}

} // namespace emm::pool
