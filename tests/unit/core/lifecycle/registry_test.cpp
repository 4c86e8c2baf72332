// Pools with names.
#include "../driver_calls.h"
#include "../host_memory.h"
#include "../recorder.h"
#include "catch.h"
#include "core/record/context.h"
#include "parts/threads.h"

#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

namespace {

struct Pool {
    std::string name;
    std::vector<std::string> options;
    emm_context *context, *group;
};

// The recorder as a plugin whose managers differ: `made` has one for each create.
class Pools {
public:
    std::vector<Pool> made;

    static Pools &the() {
        static Pools pools;
        return pools;
    }

private:
    Pools() {
        static const emm_option options[] = {{"max", nullptr, "most bytes", EMM_OPTION_SIZE, 0},
                                             {"growth", "vmm|segment", "how", EMM_OPTION_CHOICE, 0},
                                             {"turns", "1", "how often", EMM_OPTION_COUNT, 0},
                                             {"share", "1", "of all", EMM_OPTION_NUMBER, 0},
                                             {}};
        emm_plugin &table = Recorder::the().table;
        table.options = options;
        table.create = [](const emm_host *, const emm_context_info *info, const char *const *texts,
                          emm_manager **ret_manager) {
            const emm_status status = Recorder::the().on_create();
            if (status >= EMM_OK) {
                the().made.push_back(
                    {info->pool, {texts[0] ? texts[0] : "", texts[1]}, info->context, info->group});
                *ret_manager = reinterpret_cast<emm_manager *>(the().made.size());
            }
            return status;
        };
        table.destroy = [](emm_manager *self) -> emm_status { return note("destroy", self); };
        table.reset = [](emm_manager *self) -> emm_status {
            note("reset", self);
            return the().failing == reinterpret_cast<uintptr_t>(self) ? EMM_E_DRIVER : EMM_OK;
        };
        table.stream_notice = [](emm_manager *self, emm_stream, uint32_t notice) -> emm_status {
            if (the().on_notice) {
                the().on_notice(reinterpret_cast<uintptr_t>(self), notice);
            }
            note("notice " + std::to_string(notice), self);
            return the().failing == reinterpret_cast<uintptr_t>(self) ? EMM_E_DRIVER : EMM_OK;
        };
    }

    static emm_status note(const std::string &call, emm_manager *self) {
        Recorder::the().note(call + " " + std::to_string(reinterpret_cast<uintptr_t>(self)));
        return EMM_OK;
    }

public:
    uintptr_t failing = 0; // the number of a manager
    void (*on_notice)(uintptr_t manager, uint32_t notice) = nullptr;
};

emm_context *own(const char *options = nullptr) {
    Pools::the();
    return recorded_context(options);
}

emm_status ask(emm_context *context) {
    emm_deviceptr ptr = 0;
    return emm_memalloc(context, 64, EMM_STREAM_LEGACY, &ptr);
}

using Calls = std::vector<std::string>;

} // namespace

TEST_CASE("a name leads to one more manager of the CUDA context, which is made once") {
    emm_context *const context = own();
    emm_context *const pool = context_named(context, "kv-cache");
    CHECK(pool != context);
    CHECK(context_named(context, "kv-cache") == pool);
    CHECK(context_named(pool, "kv-cache") == pool); // a pool's pool belongs to the CUDA context
    emm_context *const other = context_named(pool, "weights");
    CHECK(other != pool);
    REQUIRE(Pools::the().made.size() == 3);
    CHECK(Pools::the().made[1].name == "kv-cache");
    CHECK(Pools::the().made[1].context == pool);
    CHECK(Pools::the().made[1].group == context);
    CHECK(Pools::the().made[0].name.empty());
    emm_context *current = nullptr;
    REQUIRE(CU(cuCtxSetCurrent)(info_of(pool).cuda_context) == CUDA_SUCCESS);
    REQUIRE(emm_context_current(&current) == EMM_OK);
    CHECK(current == context);
}

TEST_CASE("a context tells its pool's name and its group") {
    emm_context *const context = own();
    emm_context *const pool = context_named(context, "kv-cache");
    CHECK(std::string(info_of(context).pool).empty());
    CHECK(info_of(context).group == context);
    CHECK(std::string(info_of(pool).pool) == "kv-cache");
    CHECK(info_of(pool).group == context);
    CHECK(info_of(pool).context == pool);
    CHECK(info_of(pool).context_id == info_of(context).context_id);
    CHECK(info_of(pool).primary == 1);
}

TEST_CASE("a program of interface 1.1 gets no byte of a context that it does not know") {
    emm_context *const pool = context_named(own(), "kv-cache");
    emm_context_info info;
    std::memset(&info, 0x5a, sizeof info);
    info.struct_size = offsetof(emm_context_info, pool);
    REQUIRE(emm_context_get_info(pool, &info) == EMM_OK);
    CHECK(info.context == pool);
    CHECK(reinterpret_cast<uintptr_t>(info.pool) == 0x5a5a5a5a5a5a5a5a);
}

TEST_CASE("a pool's options replace those of the spec one by one") {
    emm_context *const context = own("max=8MiB,growth=segment");
    context_named(context, "same");
    context_named(context, "empty", "");
    context_named(context, "less", "max=2MiB");
    REQUIRE(Pools::the().made.size() == 4);
    CHECK(Pools::the().made[1].options == Calls{"8MiB", "segment"});
    CHECK(Pools::the().made[2].options == Calls{"8MiB", "segment"});
    CHECK(Pools::the().made[3].options == Calls{"2MiB", "segment"});
}

TEST_CASE("a pool that is there is found with its own options and refused with others") {
    emm_context *const context = own("max=8MiB");
    emm_context *const pool = context_named(context, "kv-cache", "max=2MiB,growth=segment");
    CHECK(context_named(context, "kv-cache") == pool);
    CHECK(context_named(context, "kv-cache", "growth=segment,max=2MiB") == pool);
    emm_context *other = nullptr;
    CHECK(emm_context_named(context, "kv-cache", "growth=segment", &other) == EMM_E_INVALID_VALUE);
    CHECK_THAT(emm_last_error()->text,
               ContainsSubstring("pool kv-cache was made with other options: expected '2MiB' for "
                                 "'max', found '8MiB'"));
    CHECK(emm_context_named(context, "kv-cache", "", &other) == EMM_E_INVALID_VALUE);
    CHECK(emm_context_named(context, "kv-cache", "mux=1", &other) == EMM_E_PLUGIN_SPEC);
    CHECK(emm_context_named(context, "kv-cache", "max", &other) == EMM_E_PLUGIN_SPEC);
    CHECK(other == nullptr);
}

TEST_CASE("a pool's options are the same if their values are, however they are written") {
    emm_context *const context = own("max=8MiB");
    emm_context *const pool = context_named(context, "kv-cache", "max=10MiB,turns=4,share=0.5");
    CHECK(context_named(context, "kv-cache", "max=10240KiB,turns=04,share=0.50") == pool);
    CHECK(context_named(context, "kv-cache", "max=10485760,turns=4,share=00.5") == pool);
    emm_context *const base = context_named(context, "base", "max=8192KiB");
    CHECK(context_named(context, "base", "") == base);
    CHECK(Pools::the().made[2].options[0] == "8MiB");
    emm_context *other = nullptr;
    for (const char *const options :
         {"max=10MB", "max=10240MiB,turns=4,share=0.5", "max=10MiB,turns=40,share=0.5",
          "max=10MiB,turns=4,share=0.05", "max=10MiB,turns=4"}) {
        CHECK(emm_context_named(context, "kv-cache", options, &other) < EMM_OK);
    }
    CHECK(other == nullptr);
}

TEST_CASE("a name with '#' at its end makes a pool that no name finds") {
    emm_context *const context = own();
    emm_context *const first = context_named(context, "torch#"), *const second = context_named(
                                                                     context, "torch#");
    CHECK(first != second);
    CHECK(std::string(info_of(first).pool) == "torch#1");
    CHECK(std::string(info_of(second).pool) == "torch#2");
    CHECK(std::string(info_of(context_named(first, "x#", "max=2MiB")).pool) == "x#1");
    emm_context *pool = nullptr;
    for (const char *const bad : {"torch#1", "#", "a#b", "a##"}) {
        CHECK(emm_context_named(context, bad, nullptr, &pool) == EMM_E_INVALID_VALUE);
        CHECK_THAT(emm_last_error()->text, ContainsSubstring("a pool's name: expected 1 to 31"));
    }
    const std::string longest = std::string(29, 'a') + "#";
    context_named(context, longest.c_str());
    CHECK(emm_context_named(context, (longest + "a").c_str(), nullptr, &pool) ==
          EMM_E_INVALID_VALUE);
    CHECK(pool == nullptr);
    CHECK(emm_context_retire(first) == EMM_OK);
    CHECK(std::string(info_of(context_named(context, "torch#")).pool) == "torch#1");
}

TEST_CASE("a new pool takes the lowest number that no pool has") {
    emm_context *const context = own();
    std::vector<emm_context *> pools;
    for (int i = 0; i < 12; i++) {
        pools.push_back(context_named(context, "torch#"));
    }
    context_named(context, "x#");
    CHECK(emm_context_retire(pools[10]) == EMM_OK);
    CHECK(emm_context_retire(pools[1]) == EMM_OK);
    for (const char *const next : {"torch#2", "torch#11", "torch#13"}) {
        CHECK(std::string(info_of(context_named(context, "torch#")).pool) == next);
    }
}

TEST_CASE("a walk over the CUDA context's pools leaves out those that are retired") {
    emm_context *const context = own();
    std::vector<emm_context *> pools, visited;
    for (int i = 0; i < 20; i++) {
        pools.push_back(context_named(context, "kv#"));
    }
    for (size_t i = 0; i < pools.size(); i++) {
        if (i != 0 && i != 7 && i != 19) {
            CHECK(emm_context_retire(pools[i]) == EMM_OK);
        }
    }
    emm::core::for_each_pool(*context, [&](emm_context &pool) { visited.push_back(&pool); });
    CHECK(visited == std::vector<emm_context *>{pools[19], pools[7], pools[0], context});
}

TEST_CASE("a visitor of the pools may retire any of them") {
    emm_context *const context = own();
    std::vector<emm_context *> pools, visited;
    for (int i = 0; i < 5; i++) {
        pools.push_back(context_named(context, "kv#"));
    }
    emm::core::for_each_pool(*context, [&](emm_context &pool) {
        if (&pool == pools[3]) {
            for (const size_t retired : {3, 2, 4, 1}) {
                CHECK(emm_context_retire(pools[retired]) == EMM_OK);
            }
        }
        if (emm::core::is_served(pool)) {
            visited.push_back(&pool);
        }
    });
    CHECK(visited == std::vector<emm_context *>{pools[4], pools[0], context});
}

#if EMM_TEST_FAILS_ALLOCATIONS
TEST_CASE("to find its number, a new pool does not build the names of the pools before it") {
    emm_context *const context = own();
    const auto allocations_for_one = [&] {
        const uint64_t before = allocations_left;
        context_named(context, "too-long-for-a-short-string#");
        return before - allocations_left;
    };
    allocations_for_one(); // that of the first also makes what all of them share
    const uint64_t at_first = allocations_for_one();
    for (int i = 0; i < 60; i++) {
        allocations_for_one();
    }
    CHECK(allocations_for_one() <= at_first + 20);
}
#endif

TEST_CASE("a numbered pool that could not be made leaves its number to the next one") {
    emm_context *const context = own();
    emm_context *pool = nullptr;
    Recorder::the().on_create = [] { return EMM_E_NOT_SUPPORTED; };
    CHECK(emm_context_named(context, "torch#", nullptr, &pool) == EMM_E_NOT_SUPPORTED);
    Recorder::the().on_create = [] { return EMM_OK; };
    CHECK(std::string(info_of(context_named(context, "torch#")).pool) == "torch#1");
}

TEST_CASE("a pool's name is short and plain") {
    emm_context *const context = own();
    emm_context *pool = nullptr;
    for (const std::string &bad : {std::string(), std::string(32, 'a'), std::string("a b"),
                                   std::string("a/b"), std::string("\x1b[2J")}) {
        CHECK(emm_context_named(context, bad.c_str(), nullptr, &pool) == EMM_E_INVALID_VALUE);
        CHECK_THAT(emm_last_error()->text, ContainsSubstring("a pool's name: expected 1 to 31"));
    }
    CHECK(emm_context_named(context, nullptr, nullptr, &pool) == EMM_E_INVALID_VALUE);
    CHECK(pool == nullptr);
    context_named(context, std::string(31, 'a').c_str());
    context_named(context, "Layer_0.kv-cache");
}

TEST_CASE("a pool that could not be made leaves its name free for other options") {
    emm_context *const context = own();
    emm_context *pool = nullptr;
    Recorder::the().on_create = [] { return EMM_E_NOT_SUPPORTED; };
    CHECK(emm_context_named(context, "kv-cache", "max=2MiB", &pool) == EMM_E_NOT_SUPPORTED);
    CHECK(std::string(emm_last_error()->stage) == "create");
    CHECK(pool == nullptr);
    CHECK(emm_context_reset(context) == EMM_OK); // makes no manager
    Recorder::the().on_create = [] { return EMM_OK; };
    context_named(context, "kv-cache", "max=4MiB");
    REQUIRE(Pools::the().made.size() == 2);
    CHECK(Pools::the().made[1].options[0] == "4MiB");
}

TEST_CASE("a plugin that asks for a pool while it makes one gets an error") {
    emm_context *const context = own();
    static emm_context *asked = nullptr;
    static emm_status inside = EMM_OK;
    asked = context;
    Recorder::the().on_create = [] {
        emm_context *pool = nullptr;
        inside = emm_context_named(asked, "other", nullptr, &pool);
        return EMM_OK;
    };
    context_named(context, "kv-cache");
    CHECK(inside == EMM_E_REENTERED);
}

TEST_CASE("16 threads that ask for one name make one pool") {
    emm_context *const context = own();
    std::vector<emm_context *> got(16, nullptr);
    in_threads(got.size(),
               [&](size_t i) { emm_context_named(context, "kv-cache", nullptr, &got[i]); });
    CHECK(Pools::the().made.size() == 2);
    CHECK(got == std::vector<emm_context *>(16, context_named(context, "kv-cache")));
}

TEST_CASE("resetting the CUDA context resets all its pools, and resetting a pool that one alone") {
    emm_context *const context = own();
    emm_context *const pool = context_named(context, "kv-cache");
    context_from(new_context());
    Recorder::the().clear();
    CHECK(emm_context_reset(pool) == EMM_OK);
    CHECK(Recorder::the().calls() == Calls{"reset 2"});
    CHECK(emm_context_reset(context) == EMM_OK);
    CHECK(Recorder::the().calls() == Calls{"reset 2", "reset 2", "reset 1"});
}

TEST_CASE(
    "a pool whose reset fails keeps no other pool from being reset, and its failure is told") {
    emm_context *const context = own();
    context_named(context, "kv-cache");
    Pools::the().failing = 2;
    Recorder::the().clear();
    CHECK(emm_context_reset(context) == EMM_E_DRIVER);
    CHECK(emm_last_error()->code == EMM_E_DRIVER);
    CHECK(Recorder::the().calls() == Calls{"reset 2", "reset 1"});
}

TEST_CASE("retiring the CUDA context retires all its pools, and retiring a pool that one alone") {
    emm_context *const context = own();
    emm_context *const first = context_named(context, "first");
    emm_context *const pool = context_named(context, "second");
    Recorder::the().clear();
    CHECK(emm_context_retire(first) == EMM_OK);
    CHECK(Recorder::the().calls() == Calls{"destroy 2"});
    CHECK(ask(first) == EMM_E_RETIRED);
    CHECK(ask(pool) == EMM_OK);
    Recorder::the().clear();
    CHECK(emm_context_retire(context) == EMM_OK);
    CHECK(Recorder::the().calls() == Calls{"destroy 3", "destroy 1"});
    CHECK(ask(pool) == EMM_E_RETIRED);
    emm_context *again = nullptr;
    CHECK(emm_context_named(context, "second", nullptr, &again) == EMM_E_RETIRED);
    CHECK(again == nullptr);
}

TEST_CASE("the name of a retired pool is free for a new one") {
    emm_context *const context = own();
    emm_context *const pool = context_named(context, "kv-cache", "max=2MiB");
    CHECK(emm_context_retire(pool) == EMM_OK);
    emm_context *const next = context_named(context, "kv-cache", "max=4MiB");
    CHECK(next != pool);
    CHECK(ask(next) == EMM_OK);
    CHECK(ask(pool) == EMM_E_RETIRED);
}

TEST_CASE("the walk over contexts visits each pool") {
    emm_context *const context = own();
    emm_context *const pool = context_named(context, "kv-cache");
    std::vector<emm_context *> seen;
    const auto visit = [](emm_context *each, void *all) {
        static_cast<std::vector<emm_context *> *>(all)->push_back(each);
        return 0;
    };
    REQUIRE(emm_foreach_context(visit, &seen) == EMM_OK);
    CHECK(seen == std::vector<emm_context *>{pool, context});
}

TEST_CASE("all pools of a CUDA context are told of its streams and captures, later ones too") {
    emm_context *const context = own();
    emm_context *const pool = context_named(context, "first");
    CUstream stream = nullptr;
    REQUIRE(CU(cuCtxSetCurrent)(info_of(context).cuda_context) == CUDA_SUCCESS);
    REQUIRE(CU(cuStreamCreate)(&stream, 0) == CUDA_SUCCESS);
    Recorder::the().clear();
    REQUIRE(emm_stream_register(context, stream) == EMM_OK);
    REQUIRE(emm_capture_begin(pool, stream) == EMM_OK);
    CHECK(Recorder::the().calls() == Calls{"notice 1 2", "notice 1 1", "notice 3 2", "notice 3 1"});
    Recorder::the().clear();
    emm_context *const later = context_named(context, "later");
    CHECK(Recorder::the().calls() == Calls{"initialize", "notice 1 3", "notice 3 3"});
    // Deferred work waits in each of them.
    const auto run = [](void *, uint32_t) -> emm_status {
        Recorder::the().note("run");
        return EMM_OK;
    };
    for (int i = 0; i < 11; i++) { // more than the limit
        REQUIRE(Recorder::the().host->defer(later, run, nullptr, 1) == EMM_OK);
    }
    CHECK(Recorder::the().count("run") == 0);
    Recorder::the().clear();
    CHECK(emm_capture_end(context, stream) == EMM_OK);
    CHECK(emm_stream_retire(pool, stream) == EMM_OK);
    CHECK(Recorder::the().calls() == Calls{"notice 4 3", "notice 4 2", "notice 4 1", "notice 2 3",
                                           "notice 2 2", "notice 2 1"});
    REQUIRE(Recorder::the().host->defer(later, run, nullptr, 1) == EMM_OK);
    CHECK(Recorder::the().count("run") == 12);
    CHECK(emm_capture_end(pool, stream) == EMM_E_INVALID_VALUE);
}

TEST_CASE("a stream that one pool refuses is taken back from the others") {
    emm_context *const context = own();
    context_named(context, "kv-cache");
    CUstream stream = nullptr;
    REQUIRE(CU(cuCtxSetCurrent)(info_of(context).cuda_context) == CUDA_SUCCESS);
    REQUIRE(CU(cuStreamCreate)(&stream, 0) == CUDA_SUCCESS);
    Pools::the().failing = 1;
    Recorder::the().clear();
    CHECK(emm_capture_begin(context, stream) == EMM_E_DRIVER);
    CHECK(Recorder::the().calls() == Calls{"notice 3 2", "notice 3 1", "notice 4 2"});
    Pools::the().failing = 0;
    CHECK(emm_capture_end(context, stream) == EMM_E_INVALID_VALUE); // none is announced
}

TEST_CASE("a pool that is made beside captures is told of each once") {
    constexpr size_t pools = 100;
    static std::atomic<int> announced[pools + 2];
    static std::atomic<bool> is_wrong{false};
    emm_context *const context = own();
    CUstream stream = nullptr;
    REQUIRE(CU(cuCtxSetCurrent)(info_of(context).cuda_context) == CUDA_SUCCESS);
    REQUIRE(CU(cuStreamCreate)(&stream, 0) == CUDA_SUCCESS);
    Pools::the().on_notice = [](uintptr_t manager, uint32_t notice) {
        if (notice == EMM_STREAM_REGISTERED) { // a capture begins or ends meanwhile, or waits
            std::this_thread::sleep_for(std::chrono::microseconds(200));
            return;
        }
        const bool begins = notice == EMM_STREAM_CAPTURE_BEGINS;
        const int before = announced[manager].fetch_add(begins ? 1 : -1);
        is_wrong = is_wrong || before != (begins ? 0 : 1);
    };
    REQUIRE(emm_stream_register(context, stream) == EMM_OK);
    std::atomic<bool> is_over{false};
    std::thread capturing([&] {
        while (!is_over) {
            emm_capture_begin(context, stream);
            emm_capture_end(context, stream);
        }
    });
    for (size_t i = 0; i < pools; ++i) {
        emm_context *const pool = context_named(context, "kv-cache");
        std::this_thread::yield();
        CHECK((i % 2 ? emm_context_reset(pool) : EMM_OK) == EMM_OK);
        CHECK(emm_context_retire(pool) == EMM_OK);
    }
    is_over = true;
    capturing.join();
    CHECK_FALSE(is_wrong);
}
