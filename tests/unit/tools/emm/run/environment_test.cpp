#include "catch.h"
#include "run/environment.h"

using namespace emm::tool;

namespace {

const std::string run_folder = "/opt/emm/lib/emm/run";
const std::string interposer = run_folder + "/libcuda.so.1";

Environment environment_after(const Environment &before, const RunOptions &options = {}) {
    Environment after = before;
    for (const auto &[name, value] : run_environment(before, options, run_folder)) {
        after.erase(name);
        if (value) {
            after[name] = *value;
        }
    }
    return after;
}

} // namespace

TEST_CASE("an empty environment gets the interposer and its folder, and nothing else") {
    CHECK(environment_after({}) ==
          Environment{{"LD_PRELOAD", interposer}, {"LD_LIBRARY_PATH", run_folder}});
    CHECK(environment_after({{"LD_PRELOAD", ""}, {"LD_LIBRARY_PATH", ""}}) ==
          environment_after({}));
}

TEST_CASE("the interposer and its folder come first, and what was there stays in its order") {
    const Environment after =
        environment_after({{"LD_PRELOAD", "/a.so:/b.so /c.so"}, {"LD_LIBRARY_PATH", "/x;/y:/z"}});
    CHECK(after.at("LD_PRELOAD") == interposer + ":/a.so:/b.so /c.so");
    CHECK(after.at("LD_LIBRARY_PATH") == run_folder + ":/x;/y:/z");
}

TEST_CASE("an empty entry, which is the current folder, stays") {
    CHECK(environment_after({{"LD_LIBRARY_PATH", ":/x:"}}).at("LD_LIBRARY_PATH") ==
          run_folder + "::/x:");
}

TEST_CASE("a run inside a run changes nothing, wherever the entries stand") {
    RunOptions options;
    options.audit = true;
    const Environment once = environment_after({{"LD_PRELOAD", "/a.so"}}, options);
    CHECK(environment_after(once, options) == once);
    const Environment mixed =
        environment_after({{"LD_PRELOAD", "/a.so " + interposer + " /b.so:" + interposer},
                           {"LD_LIBRARY_PATH", "/x:" + run_folder + ";/y"}});
    CHECK(mixed.at("LD_PRELOAD") == interposer + ":/a.so /b.so");
    CHECK(mixed.at("LD_LIBRARY_PATH") == run_folder + ":/x;/y");
}

TEST_CASE("the plugin and the log are set if they are asked for, and kept if not") {
    const Environment before = {{"EMM_PLUGIN", "async"}, {"EMM_EVENT_LOG", "/old.csv"}};
    CHECK(environment_after(before).at("EMM_PLUGIN") == "async");
    CHECK(environment_after(before).at("EMM_EVENT_LOG") == "/old.csv");
    RunOptions options;
    options.plugin = "pool:max=8GiB";
    options.record = "/new.csv";
    CHECK(environment_after(before, options).at("EMM_PLUGIN") == "pool:max=8GiB");
    CHECK(environment_after(before, options).at("EMM_EVENT_LOG") == "/new.csv");
}

TEST_CASE("tracking is set if it is asked for, and kept if not") {
    CHECK(environment_after({{"EMM_TRACK", "stack"}}).at("EMM_TRACK") == "stack");
    RunOptions options;
    options.track = "module:sample=1/10";
    CHECK(environment_after({{"EMM_TRACK", "stack"}}, options).at("EMM_TRACK") ==
          "module:sample=1/10");
}

TEST_CASE("EMM_RUN has the options of this run, and is unset without any") {
    RunOptions options;
    options.zero = true;
    CHECK(environment_after({{"EMM_RUN", "sync-free"}}, options).at("EMM_RUN") == "zero");
    CHECK(environment_after({{"EMM_RUN", "sync-free"}}).count("EMM_RUN") == 0);
    options.sync_free = options.pausable = options.no_children = true;
    CHECK(environment_after({}, options).at("EMM_RUN") == "sync-free,zero,pausable,no-children");
}

TEST_CASE("caches that give back are one option of EMM_RUN") {
    RunOptions options;
    options.release = "torch";
    CHECK(environment_after({}, options).at("EMM_RUN") == "release=torch");
    options.release = "torch,cupy";
    options.zero = true;
    CHECK(environment_after({}, options).at("EMM_RUN") == "zero,release=torch+cupy");
}

TEST_CASE("caches are named by their modules, each once") {
    for (const char *list : {"torch", "cupy", "torch,cupy", "cupy,torch"}) {
        CHECK(are_caches(list));
    }
    for (const char *list : {"", "tensorflow", "torch,", ",torch", "torch,jax", "torch,torch",
                             "torch+cupy", "torch, cupy", "Torch"}) {
        CHECK_FALSE(are_caches(list));
    }
}

TEST_CASE("the audit library is named if it is asked for") {
    RunOptions options;
    options.audit = true;
    CHECK(environment_after({}, options).at("LD_AUDIT") == run_folder + "/libemm-audit.so");
    CHECK(environment_after({{"LD_AUDIT", "/a.so"}}, options).at("LD_AUDIT") ==
          run_folder + "/libemm-audit.so:/a.so");
    CHECK(environment_after({}).count("LD_AUDIT") == 0);
}

TEST_CASE("a shell gets each variable quoted, and unsets what has to go and is there") {
    const Changes changes = {{"A", "it's $HOME"}, {"B", std::nullopt}, {"C", std::nullopt}};
    CHECK(shell_lines({{"B", "1"}}, changes) == "export A='it'\\''s $HOME'\nunset B\n");
}

TEST_CASE("the check before the program logs what is wrong, to the same place") {
    CHECK(log_of_check("info") == "warn");
    CHECK(log_of_check("debug:/tmp/a:b.log") == "warn:/tmp/a:b.log");
    CHECK(log_of_check("error:/tmp/a.log") == "error:/tmp/a.log");
    CHECK(log_of_check("warn") == "warn");
    CHECK(log_of_check("") == "");
}

TEST_CASE("a character that the dynamic linker would not take as it is written is named") {
    CHECK(unfit_character("/opt/emm-1.0/lib/run") == '\0');
    CHECK(unfit_character("/opt/my emm/run") == ' ');
    CHECK(unfit_character("/opt/a:b") == ':');
    CHECK(unfit_character("/opt/a;b") == ';');
    CHECK(unfit_character("/opt/$LIB/run") == '$');
}
