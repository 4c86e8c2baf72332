#include "loader/refusal.h"

#include <utility>

namespace emm::loader {
namespace {

thread_local bool loads_layer = false;

std::string sentence(const Refusal &refusal) {
    std::string text = refusal.path.empty() ? "" : loaded_kind() + (" " + refusal.path) + ": ";
    text += refusal.problem;
    if (!refusal.expected.empty()) {
        text += ": expected " + refusal.expected;
    }
    if (!refusal.got.empty()) {
        text += (refusal.expected.empty() ? ": " : ", found ") + refusal.got;
    }
    return refusal.hint.empty() ? text : text + "; " + refusal.hint;
}

} // namespace

LoadingLayer::LoadingLayer(bool is_layer) noexcept
    : before_(std::exchange(loads_layer, is_layer)) {}

LoadingLayer::~LoadingLayer() {
    loads_layer = before_;
}

const char *loaded_kind() noexcept {
    return loads_layer ? "layer" : "plugin";
}

emm_status refuse(Refusal refusal) {
    return observe::fail({.code = refusal.code,
                          .driver_result = refusal.driver_result,
                          .text = sentence(refusal),
                          .stage = refusal.stage,
                          .path = std::move(refusal.path),
                          .expected = std::move(refusal.expected),
                          .got = std::move(refusal.got),
                          .hint = std::move(refusal.hint),
                          .tried = std::move(refusal.tried)});
}

emm_status refuse_file(const char *stage, const std::string &path, std::string problem,
                       std::string expected, std::string got, std::string hint) {
    return refuse({EMM_E_PLUGIN_UNLOADABLE,
                   stage,
                   path,
                   std::move(problem),
                   std::move(expected),
                   std::move(got),
                   std::move(hint),
                   {path}});
}

emm_status refuse_table(const std::string &path, std::string problem, std::string expected,
                        std::string got, std::string hint) {
    return refuse({EMM_E_PLUGIN_INVALID, "validate", path, std::move(problem), std::move(expected),
                   std::move(got), std::move(hint)});
}

} // namespace emm::loader
