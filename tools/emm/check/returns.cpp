// What comes back when the work that it was waiting for is done, whatever has become of the streams
// and threads meanwhile.
#include "check/cases.h"
#include "check/hosted.h"

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

void ended_streams(const Subject &subject) {
    const Hosted hosted(subject);
    const uint64_t idle = held_bytes();
    {
        std::array<Lane, 10> lanes;
        for (Lane &lane : lanes) {
            use_once(hosted, lane.get());
        }
        expect_all_back(hosted, idle, "10 streams are left alone that have freed 20 MiB each");
    }
    for (const bool announced : {false, true}) {
        for (int i = 0; i < 10; i++) {
            Lane lane;
            if (announced) {
                hosted.enlist(lane);
            }
            use_once(hosted, lane.get());
            if (announced) {
                hosted.retire(lane);
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

// Memory that the order of one stream does not cover.
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

void ended_uses(const Subject &subject) {
    const Hosted hosted(subject);
    const uint64_t idle = held_bytes();
    const Lane lane;
    for (const emm_stream stream : {lane.get(), EMM_STREAM_PER_THREAD}) {
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
        const Lane ends;
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
