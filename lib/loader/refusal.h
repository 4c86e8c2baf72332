#pragma once

#include "observe/error.h"

#include <string>
#include <vector>

namespace emm::loader {

// What this thread loads, for a scope: the sentences say "layer" instead of "plugin".
class LoadingLayer {
public:
    explicit LoadingLayer(bool is_layer) noexcept;
    ~LoadingLayer();
    LoadingLayer(const LoadingLayer &) = delete;
    LoadingLayer &operator=(const LoadingLayer &) = delete;

private:
    const bool before_;
};
const char *loaded_kind() noexcept; // "plugin" or "layer"

// Why a plugin does not load. `refuse` makes one sentence of it and the calling thread's last
// error: "plugin PATH: PROBLEM: expected EXPECTED, found GOT; HINT". Empty texts are left out.
struct Refusal {
    emm_status code = EMM_E_PLUGIN_INVALID;
    const char *stage = "";
    std::string path = {};
    std::string problem = {};
    std::string expected = {};
    std::string got = {};
    std::string hint = {};
    std::vector<std::string> tried = {};
    int32_t driver_result = 0;
};

emm_status refuse(Refusal refusal);

// Of a file, EMM_E_PLUGIN_UNLOADABLE; of what a plugin's table says, EMM_E_PLUGIN_INVALID.
emm_status refuse_file(const char *stage, const std::string &path, std::string problem,
                       std::string expected, std::string got, std::string hint = "");
emm_status refuse_table(const std::string &path, std::string problem, std::string expected,
                        std::string got, std::string hint = "");

} // namespace emm::loader
