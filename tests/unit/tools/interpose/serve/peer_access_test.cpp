#include "serve/peer_access.h"

#include "catch.h"

using namespace emm::run;

namespace {

emm_context *memory_number(uintptr_t number) {
    return reinterpret_cast<emm_context *>(number);
}

CUcontext holder_number(uintptr_t number) {
    return reinterpret_cast<CUcontext>(number);
}

using Changes = std::vector<DeviceAccess>;

Changes change(uintptr_t memory, int32_t device, uint32_t access) {
    return {{memory_number(memory), device, access}};
}

} // namespace

TEST_CASE("the first context of a device gives it access, and the last takes it away") {
    PeerAccess peers;
    const auto set = [&](uintptr_t by, uint32_t access) {
        return peers.set(memory_number(1), 3, holder_number(by), access);
    };
    CHECK(set(7, EMM_ACCESS_READ_WRITE) == change(1, 3, EMM_ACCESS_READ_WRITE));
    CHECK(set(8, EMM_ACCESS_READ_WRITE).empty());
    CHECK(set(7, EMM_ACCESS_NONE).empty());
    CHECK(set(7, EMM_ACCESS_NONE).empty());
    CHECK(set(8, EMM_ACCESS_NONE) == change(1, 3, EMM_ACCESS_NONE));
    CHECK(set(8, EMM_ACCESS_NONE).empty());
}

TEST_CASE("each device, and the memory of each context, has an access of its own") {
    PeerAccess peers;
    const CUcontext by = holder_number(7);
    CHECK_FALSE(peers.set(memory_number(1), 3, by, EMM_ACCESS_READ_WRITE).empty());
    CHECK_FALSE(peers.set(memory_number(2), 3, by, EMM_ACCESS_READ_WRITE).empty());
    CHECK_FALSE(peers.set(memory_number(1), 4, by, EMM_ACCESS_READ_WRITE).empty());
    CHECK(peers.set(memory_number(1), 3, by, EMM_ACCESS_NONE) == change(1, 3, EMM_ACCESS_NONE));
    CHECK(peers.set(memory_number(2), 3, by, EMM_ACCESS_NONE) == change(2, 3, EMM_ACCESS_NONE));
}

TEST_CASE("the widest access that any holds is the device's") {
    PeerAccess peers;
    const CUcontext pool = nullptr;
    CHECK(peers.set(memory_number(1), 3, pool, EMM_ACCESS_READ) == change(1, 3, EMM_ACCESS_READ));
    CHECK(peers.set(memory_number(1), 3, holder_number(7), EMM_ACCESS_READ_WRITE) ==
          change(1, 3, EMM_ACCESS_READ_WRITE));
    CHECK(peers.set(memory_number(1), 3, holder_number(7), EMM_ACCESS_NONE) ==
          change(1, 3, EMM_ACCESS_READ));
}

TEST_CASE("a context that ends takes along what it alone held") {
    PeerAccess peers;
    for (const uintptr_t by : {7, 8}) {
        peers.set(memory_number(1), 3, holder_number(by), EMM_ACCESS_READ_WRITE);
    }
    peers.set(memory_number(2), 3, holder_number(7), EMM_ACCESS_READ_WRITE);
    CHECK(peers.holds_any(holder_number(7)));
    CHECK(peers.end(holder_number(7)) == change(2, 3, EMM_ACCESS_NONE));
    CHECK_FALSE(peers.holds_any(holder_number(7)));
    CHECK(peers.end(holder_number(7)).empty());
    CHECK(peers.end(holder_number(8)) == change(1, 3, EMM_ACCESS_NONE));
}

TEST_CASE("memory of a context that is gone is nothing to take away") {
    PeerAccess peers;
    peers.set(memory_number(1), 3, holder_number(7), EMM_ACCESS_READ_WRITE);
    peers.forget(memory_number(1));
    CHECK(peers.end(holder_number(7)).empty());
}
