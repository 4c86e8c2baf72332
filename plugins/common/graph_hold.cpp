#include "common/graph_hold.h"

#include <utility>

namespace emm::common {

Capture capture_of(const Driver &driver, emm_stream stream) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    cuuint64_t id = 0;
    CUgraph graph = nullptr;
    if (stream == EMM_STREAM_UNORDERED) {
        return {};
    }
    const CUresult result = driver.get_capture_info(stream, &status, &id, &graph, nullptr, nullptr);
    if (result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) {
        return {true, nullptr};
    }
    // An error must not count as "no capture": work put on the stream would become part of the
    // graph.
    driver.check(result, "cuStreamGetCaptureInfo");
    if (status == CU_STREAM_CAPTURE_STATUS_NONE) {
        return {};
    }
    return {true, status == CU_STREAM_CAPTURE_STATUS_ACTIVE ? graph : nullptr};
}

struct GraphHold::State {
    using Entries = std::map<uint64_t, LiveAllocations::Entry>;

    std::mutex mutex;
    uint64_t last_key = 0;
    Entries held, released;
    std::atomic<bool> has_released{false};

    // Makes an empty entry under a key of its own.
    uint64_t reserve() {
        std::lock_guard lock(mutex);
        held[++last_key];
        return last_key;
    }

    LiveAllocations::Entry take_from(Entries &entries) {
        Entries::node_type node = entries.extract(entries.begin());
        return std::move(node.mapped());
    }
};

// The data of the user object.
struct GraphHold::Token {
    std::shared_ptr<State> state;
    uint64_t key;
};

GraphHold::GraphHold() : state_(std::make_shared<State>()) {}

void GraphHold::hold(const Driver &driver, CUgraph graph, LiveAllocations::Entry &entry) {
    auto token = std::make_unique<Token>(Token{state_, state_->reserve()});
    const uint64_t key = token->key;
    CUuserObject object = nullptr;
    driver.check(driver.cuUserObjectCreate(&object, token.get(), &graph_is_gone, 1,
                                           CU_USER_OBJECT_NO_DESTRUCTOR_SYNC),
                 "cuUserObjectCreate");
    token.release(); // the user object owns it from here on
    const CUresult result =
        driver.cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE);
    if (result != CUDA_SUCCESS) {
        driver.cuUserObjectRelease(object, 1);
        driver.fail(result, "cuGraphRetainUserObject");
    }
    std::lock_guard lock(state_->mutex);
    const auto place = state_->held.find(key);
    if (place != state_->held.end()) {
        place->second = std::move(entry);
    }
}

bool GraphHold::has_released() const noexcept {
    return state_->has_released.load(std::memory_order_relaxed);
}

LiveAllocations::Entry GraphHold::take_released() noexcept {
    std::lock_guard lock(state_->mutex);
    if (state_->released.empty()) {
        return {};
    }
    state_->has_released.store(state_->released.size() > 1, std::memory_order_relaxed);
    return state_->take_from(state_->released);
}

LiveAllocations::Entry GraphHold::take_any() noexcept {
    LiveAllocations::Entry entry = take_released();
    std::lock_guard lock(state_->mutex);
    while (entry.empty() && !state_->held.empty()) {
        entry = state_->take_from(state_->held);
    }
    return entry;
}

void GraphHold::graph_is_gone(void *argument) {
    const std::unique_ptr<Token> token(static_cast<Token *>(argument));
    State &state = *token->state;
    std::lock_guard lock(state.mutex);
    State::Entries::node_type node = state.held.extract(token->key);
    if (!node.empty() && !node.mapped().empty()) {
        state.released.insert(std::move(node));
        state.has_released.store(true, std::memory_order_relaxed);
    }
}

} // namespace emm::common
