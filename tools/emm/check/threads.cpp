// Threads, contexts and devices: who calls, and with what current.
#include "check/cases.h"
#include "check/hosted.h"

#include <mutex>
#include <random>
#include <thread>

namespace emm::tool::check {
namespace {

// Runs `body` on several threads at once; the first thing that goes wrong is told.
template <class Body> void on_threads(unsigned count, const Body &body) {
    std::mutex mutex;
    std::string trouble;
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < count; i++) {
        threads.emplace_back([&, i] {
            try {
                body(i);
            } catch (const std::exception &error) {
                const std::lock_guard lock(mutex);
                trouble = trouble.empty() ? error.what() : trouble;
            }
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    expect(trouble.empty(), "{}", trouble);
}

void parallel(const Subject &subject) {
    const Hosted hosted(subject);
    on_threads(4, [&](unsigned thread) {
        enter(hosted.cuda());
        Lane lane;
        hosted.enlist(lane);
        std::mt19937_64 random(subject.seed + thread);
        std::vector<std::pair<emm_deviceptr, size_t>> live;
        for (int i = 0; i < 400; i++) {
            if (live.size() < 20 && random() % 2 == 0) {
                const size_t size = 1 + random() % (size_t(1) << (random() % 20));
                live.emplace_back(hosted.alloc(size, lane.get()), size);
                mark(lane.get(), live.back().first, size, static_cast<uint8_t>(thread + 1));
            } else if (!live.empty()) {
                const auto [ptr, size] = live.back();
                live.pop_back();
                expect(is_marked(lane.get(), ptr, size, static_cast<uint8_t>(thread + 1)),
                       "a live block of {} bytes was changed by another thread", size);
                hosted.free(ptr, size, lane.get());
            }
        }
        for (const auto &[ptr, size] : live) {
            hosted.free(ptr, size, lane.get());
        }
        hosted.retire(lane);
    });
}

// What one thread allocates, another frees, whatever context is current there.
void foreign_free(const Subject &subject) {
    const Hosted hosted(subject);
    const CUcontext other = make_context();
    enter(hosted.cuda());
    for (const CUcontext current : {CUcontext(nullptr), other, hosted.cuda()}) {
        std::vector<emm_deviceptr> blocks;
        for (int i = 0; i < 20; i++) {
            blocks.push_back(hosted.alloc(mib));
        }
        on_threads(1, [&](unsigned) {
            enter(current);
            for (const emm_deviceptr ptr : blocks) {
                hosted.free(ptr, mib);
            }
            hosted.free(hosted.alloc(mib), mib);
        });
    }
}

void devices(const Subject &subject) {
    const Hosted second(subject, 1), first(subject, 0); // device 0 stays current
    const auto attribute = EMM_CHECK_CUDA(cuPointerGetAttribute);
    int ordinal = 0;
    for (const Hosted *hosted : {&second, &first}) {
        const int expected = hosted == &second ? 1 : 0;
        const emm_deviceptr ptr = hosted->alloc(mib);
        require_cuda(attribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, ptr),
                     "cuPointerGetAttribute");
        expect(ordinal == expected, "memory for device {} lies on device {}", expected, ordinal);
        hosted->free(ptr, mib);
    }
}

void peers(const Subject &subject) {
    const Hosted second(subject, 1), first(subject, 0);
    const emm_deviceptr before = first.alloc(mib);
    const emm_status given = emm_set_peer_access(first.get(), 1, EMM_ACCESS_READ_WRITE);
    if (given == EMM_E_NOT_SUPPORTED) {
        first.free(before, mib);
        throw Skipped(std::string("it gives no access: ") + emm_last_error()->text);
    }
    must(given, "set_access");
    const emm_deviceptr after = first.alloc(64 * mib);
    enter(second.cuda());
    const Lane lane;
    for (const emm_deviceptr ptr : {before, after}) {
        mark(lane.get(), ptr, mib, 0x33);
        expect(is_marked(lane.get(), ptr, mib, 0x33), "what a peer wrote is not there");
    }
    enter(first.cuda());
    first.free(before, mib);
    first.free(after, 64 * mib);
}

} // namespace

std::vector<Case> thread_cases() {
    return {
        {"threads/parallel", "EMM-P-19", "threads do not disturb each other", parallel},
        {"threads/foreign-free", "EMM-P-19", "any thread may free, with any or no current context",
         foreign_free},
        {"devices/two", "EMM-P-20", "memory comes from the manager's own device", devices,
         two_devices, "devices=2"},
        {"devices/peers", "EMM-P-42", "a peer that was given access has it", peers, two_devices,
         "devices=2"},
    };
}

} // namespace emm::tool::check
