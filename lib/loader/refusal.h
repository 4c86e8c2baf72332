#pragma once

#include "observe/error.h"

#include <string>
#include <vector>

namespace emm::loader {

// Marks, for a scope, that this thread loads a layer: error texts then say "layer" instead of
// "plugin".
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

// For a file, EMM_E_PLUGIN_UNLOADABLE; for the content of a plugin's table, EMM_E_PLUGIN_INVALID.
emm_status refuse_file(const char *stage, const std::string &path, std::string problem,
                       std::string expected, std::string got, std::string hint = "");
emm_status refuse_table(const std::string &path, std::string problem, std::string expected,
                        std::string got, std::string hint = "");

} // namespace emm::loader
