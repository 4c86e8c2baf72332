// pluggable alone: the libraries that it refuses, the texts, and its calls.
#include "../gpu.h"
#include "parts/threads.h"

#include <string>

namespace {

constexpr size_t mib = 1 << 20;

std::string file(const std::string &part) {
    return std::string(EMM_TEST_FIXTURES) + "/lib" + part + "-pair.so";
}

std::string spec(const std::string &alloc = "my_alloc", const std::string &free = "my_free",
                 const std::string &more = "", const std::string &part = "plain") {
    return "pluggable:lib=" + file(part) + ",alloc=" + alloc + ",free=" + free + more;
}

// The context of the first device that the plugin serves; or NULL, and the sentence.
emm_context *served_by(const std::string &plugin, std::string &ret_text) {
    emm_context *context = nullptr;
    emm_status status = emm_set_plugin(plugin.c_str());
    if (status >= EMM_OK) {
        status = emm_context_for_device(0, &context);
    }
    ret_text = status >= EMM_OK ? "" : emm_last_error()->text;
    return status >= EMM_OK ? context : nullptr;
}

emm_context *served_by(const std::string &plugin) {
    std::string text;
    emm_context *const context = served_by(plugin, text);
    INFO(text);
    REQUIRE(context);
    REQUIRE(CU(cuCtxSetCurrent)(info_of(context).cuda_context) == CUDA_SUCCESS);
    return context;
}

std::string refusal_of(const std::string &plugin) {
    std::string text;
    CHECK(!served_by(plugin, text));
    return text;
}

struct Answer {
    emm_status status;
    std::string text;
    emm_deviceptr ptr = 0;
};

Answer request(emm_context *context, size_t size = mib) {
    Answer answer = {};
    answer.status = emm_memalloc(context, size, EMM_STREAM_UNORDERED, &answer.ptr);
    answer.text = answer.status >= EMM_OK ? "" : emm_last_error()->text;
    return answer;
}

} // namespace

TEST_CASE("each option that a library cannot do without is asked for by name") {
    CHECK_THAT(refusal_of("pluggable"),
               ContainsSubstring("option lib is missing: the absolute path"));
    CHECK_THAT(refusal_of("pluggable:lib=" + file("plain") + ",free=my_free"),
               ContainsSubstring("option alloc is missing: the name of its function"));
    CHECK_THAT(refusal_of("pluggable:lib=" + file("plain") + ",alloc=my_alloc"),
               ContainsSubstring("option free is missing: the name of its function"));
    CHECK_THAT(refusal_of("pluggable:lib=x.so,alloc=a,free=b"),
               ContainsSubstring("expected the absolute path of a library, found 'x.so'"));
}

TEST_CASE("a library that is not there, and a function that it lacks, are named") {
    CHECK_THAT(refusal_of("pluggable:lib=/nonexistent/x.so,alloc=a,free=b"),
               ContainsSubstring("library /nonexistent/x.so: the dynamic linker refused it: ") &&
                   ContainsSubstring("No such file"));
    for (const auto &[plugin, option] :
         {std::pair{spec("no_such"), "alloc"}, std::pair{spec("my_alloc", "no_such"), "free"},
          std::pair{spec("my_alloc", "my_free", ",empty=no_such"), "empty"},
          std::pair{spec("my_alloc", "my_free", ",init=no_such"), "init"}}) {
        CHECK_THAT(refusal_of(plugin),
                   ContainsSubstring("library " + file("plain") +
                                     ": it does not export no_such, which option " + option +
                                     " names; in C++ "));
    }
}

TEST_CASE("a function that the library lacks is told where the plugin is chosen") {
    CHECK(emm_set_plugin(spec("no_such").c_str()) == EMM_E_PLUGIN_UNLOADABLE);
    CHECK_THAT(emm_last_error()->text, ContainsSubstring("it does not export no_such"));
}

TEST_CASE("NULL is out of memory, and the library and its function are named") {
    emm_context *const context = served_by(spec("no_memory"));
    const Answer answer = request(context);
    CHECK(answer.status == EMM_E_OUT_OF_MEMORY);
    CHECK_THAT(answer.text, ContainsSubstring("library " + file("plain") +
                                              ": no_memory has no memory for 1048576 bytes"));
    CHECK(stats_of(context).failures > 0);
}

TEST_CASE("std::bad_alloc is out of memory too") {
    CHECK(request(served_by(spec("bad_alloc"))).status == EMM_E_OUT_OF_MEMORY);
}

TEST_CASE("an exception of the library's becomes a sentence that names the function") {
    const Answer answer = request(served_by(spec("throwing_alloc")));
    CHECK(answer.status == EMM_E_PLUGIN_EXCEPTION);
    CHECK_THAT(answer.text,
               ContainsSubstring("library " + file("plain") +
                                 ": its throwing_alloc threw an exception: no place today"));
}

TEST_CASE("what a free that throws was to free stays live") {
    emm_context *const context = served_by(spec("my_alloc", "throwing_free"));
    const Answer answer = request(context);
    REQUIRE(answer.status == EMM_OK);
    CHECK(emm_memfree(context, answer.ptr, mib, EMM_STREAM_LEGACY) == EMM_E_PLUGIN_EXCEPTION);
    CHECK_THAT(emm_last_error()->text, ContainsSubstring("its throwing_free threw an exception"));
    CHECK(stats_of(context).live_bytes == mib);
}

TEST_CASE("an address that the driver does not know is not handed out") {
    const Answer host = request(served_by(spec("host_alloc")));
    CHECK(host.status == EMM_E_NOT_SUPPORTED);
    CHECK_THAT(host.text, ContainsSubstring("host_alloc returned an address that emm's driver does "
                                            "not know"));
}

TEST_CASE("memory that is not aligned goes back to the library") {
    emm_context *const context = served_by(spec("misaligned_alloc", "misaligned_free"));
    const uint64_t before = device_bytes();
    const Answer odd = request(context);
    CHECK(odd.status == EMM_E_NOT_SUPPORTED);
    CHECK_THAT(odd.text, ContainsSubstring("not a multiple of 256"));
    CHECK(device_bytes() == before);
}

TEST_CASE("init is called with the number of devices, once for all contexts") {
    emm_context *const first = served_by(spec("alloc_after_init", "my_free", ",init=my_init"));
    emm_context *second = context_for_device(1);
    for (emm_context *const context : {first, second}) {
        const Answer answer = request(context);
        CHECK(answer.status == EMM_OK);
        CHECK(emm_memfree(context, answer.ptr, mib, EMM_STREAM_LEGACY) == EMM_OK);
    }
}

TEST_CASE("no thread allocates before init has returned") {
    emm_context *contexts[2] = {served_by(spec()), nullptr};
    REQUIRE(emm_context_for_device(1, &contexts[1]) == EMM_OK);
    const std::string options =
        "lib=" + file("plain") + ",alloc=alloc_if_initialized,free=my_free,init=slow_init";
    emm_status answers[2] = {};
    in_threads(2, [&](size_t device) {
        emm_context *pool = nullptr;
        answers[device] = emm_context_named(contexts[device], "late", options.c_str(), &pool);
        answers[device] = answers[device] >= EMM_OK ? request(pool).status : answers[device];
    });
    CHECK(answers[0] == EMM_OK);
    CHECK(answers[1] == EMM_OK);
}

TEST_CASE("an init that has thrown is called again") {
    CHECK_THAT(refusal_of(spec("alloc_if_initialized", "my_free", ",init=init_that_throws_once")),
               ContainsSubstring("its init_that_throws_once threw an exception: not yet"));
    emm_context *context = nullptr;
    CHECK(emm_context_for_device(0, &context) == EMM_OK);
    CHECK(request(context).status == EMM_OK);
}

TEST_CASE("a trim empties the library's cache, and a free in a deferred section comes later") {
    emm_context *const context =
        served_by(spec("my_alloc", "my_free", ",empty=my_empty", "caching"));
    const uint64_t idle = device_bytes();
    REQUIRE(emm_defer_cleanup_begin(context) == EMM_OK);
    const Answer one = request(context, 10 * mib);
    CHECK(emm_memfree(context, one.ptr, 10 * mib, EMM_STREAM_UNORDERED) == EMM_OK);
    CHECK(stats_of(context).pending_bytes == 10 * mib);
    REQUIRE(emm_defer_cleanup_end(context) == EMM_OK);
    size_t released = 0;
    CHECK(device_bytes() == idle + 10 * mib);
    REQUIRE(emm_trim(context, 0, &released) == EMM_OK);
    CHECK(released == 10 * mib);
    CHECK(device_bytes() == idle);
    CHECK(stats_of(context).reserved_bytes == 0);
}

TEST_CASE("what the library keeps of a request whose wait failed counts in the peak too") {
    emm_context *const context =
        served_by(spec("my_alloc", "my_free", ",empty=my_empty", "caching"));
    fail_next("cuStreamSynchronize@1:999");
    CHECK(request(context).status == EMM_E_DRIVER);
    fail_next(nullptr);
    CHECK(stats_of(context).reserved_bytes == mib);
    CHECK(stats_of(context).peak_reserved_bytes == mib);
    REQUIRE(emm_trim(context, 0, nullptr) == EMM_OK);
    CHECK(stats_of(context).reserved_bytes == 0);
    CHECK(stats_of(context).peak_reserved_bytes == mib);
}

TEST_CASE("what is freed on a stream in a deferred section is the library's at its end") {
    emm_context *const context = served_by(spec());
    const uint64_t idle = device_bytes();
    REQUIRE(emm_defer_cleanup_begin(context) == EMM_OK);
    const Answer one = request(context);
    CHECK(emm_memfree(context, one.ptr, mib, EMM_STREAM_LEGACY) == EMM_OK);
    CHECK(device_bytes() > idle);
    REQUIRE(emm_defer_cleanup_end(context) == EMM_OK);
    CHECK(device_bytes() == idle);
}

TEST_CASE("a free on a stream whose capture was invalidated is the library's afterwards") {
    emm_context *const context = served_by(spec());
    const uint64_t idle = device_bytes();
    CUstream stream = nullptr;
    CUgraph none = nullptr;
    REQUIRE(CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    const Answer one = request(context);
    REQUIRE(CU(cuStreamBeginCapture)(stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
    CHECK(CU(cuStreamSynchronize)(stream) != CUDA_SUCCESS);
    CHECK(emm_memfree(context, one.ptr, mib, stream) == EMM_OK);
    CHECK(CU(cuStreamEndCapture)(stream, &none) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    REQUIRE(emm_trim(context, 0, nullptr) == EMM_OK);
    CHECK(device_bytes() == idle);
    CHECK(CU(cuStreamDestroy)(stream) == CUDA_SUCCESS);
}

TEST_CASE("a stack over it is opaque, whatever its layers claim") {
    served_by("outer+" + spec());
    CHECK((plugin_info().capabilities & EMM_PLUGIN_OPAQUE) != 0);
}
