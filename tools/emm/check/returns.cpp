// Memory comes back when its work is done, even if its stream or thread has ended meanwhile.
#include "check/hosted.h"
#include "check/plan.h"

#include <array>
#include <future>

namespace emm::tool::check {
namespace {

constexpr size_t freed_size = 20 * mib;

void use_once(const Hosted &hosted, emm_stream stream) {
    const emm_deviceptr ptr = hosted.alloc(freed_size, stream);
    mark(stream, ptr, freed_size, 1);
    hosted.free(ptr, freed_size, stream);
}

void use_by_thread(const Hosted &hosted) {
    std::async(std::launch::async, [&] {
        enter(hosted.cuda());
        use_once(hosted, EMM_STREAM_PER_THREAD);
    }).get();
}

void ended_streams(const CheckedPlugin &plugin) {
    const Hosted hosted(plugin);
    const uint64_t idle = held_bytes();
    {
        std::array<OwnedStream, 10> streams;
        for (OwnedStream &owned : streams) {
            use_once(hosted, owned.get());
        }
        expect_all_back(hosted, idle, "10 streams are left alone that have freed 20 MiB each");
    }
    for (const bool announced : {false, true}) {
        for (int i = 0; i < 10; i++) {
            OwnedStream owned;
            if (announced) {
                hosted.enlist(owned);
            }
            use_once(hosted, owned.get());
            if (announced) {
                hosted.retire(owned);
            }
        }
        expect_all_back(hosted, idle,
                        announced ? "10 streams that have freed 20 MiB each have been retired"
                                  : "10 streams that have freed 20 MiB each have been destroyed");
    }
    for (int i = 0; i < 10; i++) {
        use_by_thread(hosted);
    }
    expect_all_back(hosted, idle, "10 threads that have freed 20 MiB each have ended");
}

// Memory used on another stream than the one it is freed on.
void use_elsewhere_too(const Hosted &hosted, emm_stream stream) {
    const emm_deviceptr ptr = hosted.alloc(freed_size);
    mark(stream, ptr, freed_size, 1);
    const emm_status noted = emm_record_use(hosted.get(), ptr, freed_size, stream);
    if (noted != EMM_E_NOT_SUPPORTED) {
        must(noted, "record_use");
    }
    hosted.free(ptr, freed_size,
                noted == EMM_E_NOT_SUPPORTED ? EMM_STREAM_UNORDERED : EMM_STREAM_LEGACY);
}

void ended_uses(const CheckedPlugin &plugin) {
    const Hosted hosted(plugin);
    const uint64_t idle = held_bytes();
    const OwnedStream owned;
    for (const emm_stream stream : {owned.get(), EMM_STREAM_PER_THREAD}) {
        for (int i = 0; i < 10; i++) {
            use_elsewhere_too(hosted, stream);
        }
        expect_all_back(hosted, idle, "10 blocks of 20 MiB that were used elsewhere are freed");
        for (int i = 0; i < 10; i++) {
            const emm_deviceptr ptr = hosted.alloc(freed_size);
            mark(stream, ptr, freed_size, 1);
            hosted.free(ptr, freed_size);
        }
        expect_all_back(hosted, idle, "10 blocks of 20 MiB are freed without a stream");
    }
    for (int i = 0; i < 10; i++) {
        const OwnedStream ends;
        use_elsewhere_too(hosted, ends.get());
    }
    expect_all_back(hosted, idle,
                    "10 blocks of 20 MiB are freed, and the streams are gone that "
                    "used them too");
}

} // namespace

std::vector<Case> return_cases() {
    return {
        {"cleanup/ended-uses", "EMM-P-54", "what several streams have used comes back", ended_uses,
         on_simulator | every_mode},
        {"cleanup/ended-streams", "EMM-P-57",
         "what was freed on streams that have ended comes back", ended_streams,
         on_simulator | every_mode},
    };
}

} // namespace emm::tool::check
