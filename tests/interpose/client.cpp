// client HOW CASE[,CASE...]: a program on the driver API, which prints what it finds. HOW it finds
// the driver is said in driver.h; `client list` names the cases, and `all` is every one but
// `wrong-frees` and `zeroed`. The exit status is 0 if all is as CUDA's documentation says, 1 if
// not, 2 for wrong usage and 3 if a case could not go on.
#include "cases.h"
#include "facts.h"

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <unistd.h>

namespace {

struct Case {
    const char *name;
    std::function<void()> run;
};

// In this order, because the first two begin before cuInit.
const Case *find_cases(const std::string &how, size_t &ret_count) {
    static const Case cases[] = {{"before-init", before_init_case},
                                 {"ipc", [how] { ipc_case(how); }},
                                 {"alloc", alloc_case},
                                 {"reuse", reuse_case},
                                 {"pitch", pitch_case},
                                 {"managed", managed_case},
                                 {"info", info_case},
                                 {"async", async_case},
                                 {"pools", pools_case},
                                 {"streams", streams_case},
                                 {"capture", capture_case},
                                 {"graph-figures", graph_figures_case},
                                 {"host", host_case},
                                 {"register", register_case},
                                 {"ranges", ranges_case},
                                 {"after-frees", after_frees_case},
                                 {"attributes", attributes_case},
                                 {"handles", handles_case},
                                 {"contexts", contexts_case},
                                 {"primary", primary_case},
                                 {"survivors", survivors_case},
                                 {"threads", threads_case},
                                 {"own-streams", own_streams_case},
                                 {"while-capturing", while_capturing_case},
                                 {"host-functions", host_functions_case},
                                 {"green", green_case},
                                 {"peers", peers_case},
                                 {"device-pools", device_pools_case},
                                 {"pool-access", pool_access_case},
                                 {"own-pools", own_pools_case},
                                 {"ended-pools", ended_pools_case},
                                 {"passed-on", passed_on_case},
                                 {"after-large-frees", after_large_frees_case},
                                 {"fork", fork_case},
                                 {"exec", [how] { exec_case(how); }},
                                 {"zeroed", zeroed_case},
                                 {"wrong-frees", wrong_frees_case}};
    ret_count = std::size(cases);
    return cases;
}

// `wanted` is `all`, or names separated by commas.
bool is_wanted(const std::string &name, const std::string &wanted) {
    return wanted == "all" ? name != "wrong-frees" && name != "zeroed"
                           : ("," + wanted + ",").find("," + name + ",") != std::string::npos;
}

int run_cases(const std::string &how, const std::string &wanted) {
    size_t count;
    const Case *cases = find_cases(how, count);
    int runs = 0;
    for (size_t i = 0; i < count; ++i) {
        if (is_wanted(cases[i].name, wanted)) {
            begin_case(cases[i].name);
            cases[i].run();
            ++runs;
        }
    }
    if (runs == 0) {
        fprintf(stderr, "client: %s: no such case\n", wanted.c_str());
        return 2;
    }
    return wrong_facts() == 0 ? 0 : 1;
}

// Runs a child that this program starts itself.
int run_child(int argc, char *argv[]) {
    const std::string name = argv[2];
    begin_case(argv[2]);
    if (name == "exec-child") {
        exec_child();
        return wrong_facts() == 0 ? 0 : 1;
    }
    if (argc != 6) {
        return 2;
    }
    close(std::atoi(argv[5])); // the exporter's end: its last close ends this process
    ipc_child(std::atoi(argv[3]), std::atoi(argv[4]));
    return 0;
}

int list_cases() {
    size_t count;
    const Case *cases = find_cases("", count);
    for (size_t i = 0; i < count; ++i) {
        puts(cases[i].name);
    }
    return 0;
}

} // namespace

int main(int argc, char *argv[]) {
    if (argc == 2 && argv[1] == std::string("list")) {
        return list_cases();
    }
    if (argc < 3) {
        fputs("usage: client HOW CASE, or client list\n", stderr);
        return 2;
    }
    const std::string missing = find_driver(argv[1]);
    if (!missing.empty()) {
        fprintf(stderr, "client: %s\n", missing.c_str());
        return 2;
    }
    const std::string name = argv[2];
    return name == "exec-child" || name == "ipc-child" ? run_child(argc, argv)
                                                       : run_cases(argv[1], name);
}
