#include "serve/options.h"

#include "catch.h"

using namespace emm::run;

namespace {

Options options_of(const char *text) {
    Options options;
    std::string problem;
    CHECK(read_options(text, options, problem));
    CHECK(problem.empty());
    return options;
}

std::string problem_of(const char *text) {
    Options options;
    std::string problem;
    CHECK_FALSE(read_options(text, options, problem));
    return problem;
}

std::string found(const std::string &item) {
    return "EMM_RUN: expected sync-free, zero, pausable, no-children and release=torch+cupy, "
           "separated by "
           "commas, found '" +
           item + "'";
}

} // namespace

TEST_CASE("without options nothing is asked for") {
    for (const char *text : {static_cast<const char *>(nullptr), "", "no-children", "pausable"}) {
        const Options options = options_of(text);
        CHECK_FALSE(options.sync_free);
        CHECK_FALSE(options.zero);
        CHECK(options.release == no_caches);
    }
}

TEST_CASE("each option counts, in any order") {
    CHECK(options_of("zero").zero);
    CHECK(options_of("sync-free,zero").zero);
    CHECK(options_of("zero,sync-free").sync_free);
    CHECK(options_of("zero,release=torch").zero);
    CHECK(options_of("release=torch,sync-free").sync_free);
}

TEST_CASE("caches are named once or more") {
    CHECK(options_of("release=torch").release == torch_cache);
    CHECK(options_of("release=cupy").release == cupy_cache);
    CHECK(options_of("release=cupy+torch").release == (torch_cache | cupy_cache));
    CHECK(options_of("release=torch+torch").release == torch_cache);
    CHECK(options_of("release=torch,release=cupy").release == (torch_cache | cupy_cache));
}

TEST_CASE("what is no option is named") {
    CHECK(problem_of("zeros") == found("zeros"));
    CHECK(problem_of("zero,,sync-free") == found(""));
    CHECK(problem_of("zero,") == found(""));
    CHECK(problem_of("zero, sync-free") == found(" sync-free"));
    CHECK(problem_of("release") == found("release"));
}

TEST_CASE("what is no cache is named with its option") {
    CHECK(problem_of("release=") == found("release="));
    CHECK(problem_of("release=tensorflow") == found("release=tensorflow"));
    CHECK(problem_of("release=torch+") == found("release=torch+"));
    CHECK(problem_of("release=torch++cupy") == found("release=torch++cupy"));
    CHECK(problem_of("release=torch,cupy") == found("cupy"));
}

TEST_CASE("a long option is cut") {
    CHECK(problem_of(std::string(1000, 'x').c_str()) == found(std::string(100, 'x')));
}
