// The only code here that looks symbols up.

#include "loader/plugin.h"

#include "dl/load.h"
#include "loader/refusal.h"
#include "observe/callers/modules.h"
#include "observe/running.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>

namespace emm::loader {
namespace {

constexpr unsigned highest_major_looked_for = 16;

// The entry function of a plugin or of a layer.
struct Entry {
    const char *symbol, *stem, *macro;
};
constexpr Entry entry_of_plugin = {EMM_PLUGIN_ENTRY_SYMBOL, "emm_plugin_entry_v",
                                   "EMM_PLUGIN_ENTRY"};
constexpr Entry entry_of_layer = {EMM_LAYER_ENTRY_SYMBOL, "emm_layer_entry_v", "EMM_LAYER_ENTRY"};

std::string error_text(const std::string &path) {
    const char *error = dlerror();
    std::string text = error ? error : "no reason given";
    // "/the/path.so: undefined symbol: x": the sentence names the path already.
    return text.rfind(path + ": ", 0) == 0 ? text.substr(path.size() + 2) : text;
}

// A hint for a file that may belong to another program.
std::string hint_at_pair(const std::string &path) {
    return "; for PyTorch's pair of functions: pluggable:lib=" + path + ",alloc=NAME,free=NAME";
}

emm_status map(const std::string &path, void *&ret_handle) {
    // dlopen would replace $LIB or $ORIGIN, and map another file than the checked one.
    if (path.find('$') != std::string::npos) {
        return refuse_file("dlopen", path,
                           "its path has a '$', which the dynamic linker would replace", "", "",
                           "move the plugin");
    }
    const observe::RunningText text = observe::running_text("its constructors", path);
    const observe::Running running(text);
    ret_handle = dl::load_library(path, std::string(loaded_kind()) + " " + path);
    if (ret_handle) {
        return EMM_OK;
    }
    const std::string error = error_text(path);
    // Plugins of emm need none.
    const bool needs_driver = error.find("libcuda") != std::string::npos;
    return refuse_file("dlopen", path, "the dynamic linker refused it", "", error,
                       "ldd -r " + path + " shows what is missing" +
                           (needs_driver ? hint_at_pair(path) : ""));
}

struct Symbol {
    void *address = nullptr;
    std::string library; // the library that contains it; "" if none does
    bool own = false;    // in the plugin itself, not in one of its dependencies
    bool function = false;
};

// dlsym also finds data, and a call would jump into that.
bool is_function(const void *address) {
    Dl_info info = {};
    const ElfW(Sym) *symbol = nullptr;
    dladdr1(address, &info, const_cast<void **>(reinterpret_cast<const void **>(&symbol)),
            RTLD_DL_SYMENT);
    const unsigned type =
        symbol && info.dli_saddr == address ? ELF64_ST_TYPE(symbol->st_info) : STT_NOTYPE;
    return observe::modules().find(reinterpret_cast<uintptr_t>(address)) && type != STT_OBJECT &&
           type != STT_COMMON && type != STT_TLS;
}

// dlsym also looks through the dependencies.
Symbol look_up(void *handle, const std::string &name) {
    Symbol symbol;
    symbol.address = dlsym(handle, name.c_str());
    Dl_info info = {};
    link_map *holder = nullptr;
    link_map *plugin = nullptr;
    if (symbol.address &&
        dladdr1(symbol.address, &info, reinterpret_cast<void **>(&holder), RTLD_DL_LINKMAP) != 0 &&
        dlinfo(handle, RTLD_DI_LINKMAP, &plugin) == 0) {
        symbol.own = holder == plugin;
        symbol.library = info.dli_fname;
        symbol.function = is_function(symbol.address);
    }
    return symbol;
}

emm_status refuse_symbol(const Entry &wanted, const std::string &path, std::string got) {
    return refuse_file("symbol", path, fmt::format("its {} is of the wrong kind", wanted.symbol),
                       "a function", std::move(got),
                       fmt::format("define it with {} of emm/plugin.h", wanted.macro));
}

emm_status refuse_plugin_as_layer(const std::string &path) {
    return refuse_file("symbol", path, "it is a plugin", "a layer before the '+'", "",
                       "only the last name of a stack is a plugin's, as in count+pool");
}

emm_status refuse_layer_as_plugin(const std::string &path) {
    return refuse_file("symbol", path, "it is a layer", "", "",
                       "a layer is named before a plugin, as in count+pool; EMM_PLUGIN_PATH "
                       "names its folder");
}

emm_status refuse_without_entry(const Entry &wanted, void *handle, const std::string &path) {
    const bool is_layer = &wanted == &entry_of_layer;
    if (look_up(handle, (is_layer ? entry_of_plugin : entry_of_layer).symbol).own) {
        return is_layer ? refuse_plugin_as_layer(path) : refuse_layer_as_plugin(path);
    }
    for (unsigned major = 0; major <= highest_major_looked_for; ++major) {
        const std::string name = fmt::format("{}{}", wanted.stem, major);
        if (look_up(handle, name).own) {
            return refuse(
                {.code = EMM_E_PLUGIN_VERSION,
                 .stage = "negotiate",
                 .path = path,
                 .problem = "it speaks another major version of the plugin ABI",
                 .expected =
                     fmt::format("major version {} ({})", EMM_PLUGIN_ABI_MAJOR, wanted.symbol),
                 .got = fmt::format("only major version {} ({})", major, name),
                 .hint = major > EMM_PLUGIN_ABI_MAJOR ? "use a newer emm" : "use a newer plugin",
                 .tried = {path}});
        }
    }
    return refuse_file(
        "symbol", path,
        fmt::format("it is not an emm {}: it does not export {}", loaded_kind(), wanted.symbol), "",
        "",
        fmt::format("define it with {} of emm/plugin.h; in C++ it must be "
                    "extern \"C\" and visible{}",
                    wanted.macro, is_layer ? "" : hint_at_pair(path)));
}

} // namespace

emm_status open_library(const std::string &path, bool is_layer, emm_plugin_entry &ret_entry) {
    const Entry &wanted = is_layer ? entry_of_layer : entry_of_plugin;
    void *handle = nullptr;
    EMM_TRY(map(path, handle));
    const Symbol entry = look_up(handle, wanted.symbol);
    if (!entry.address) {
        return refuse_without_entry(wanted, handle, path);
    }
    if (entry.library.empty()) {
        return refuse_symbol(wanted, path, "a symbol that is thread-local or absolute");
    }
    if (entry.own && !entry.function) {
        return refuse_symbol(wanted, path, "data");
    }
    if (!entry.own) {
        return refuse_file("symbol", path,
                           fmt::format("it is not an emm {}: its dependency {} exports {}",
                                       loaded_kind(), entry.library, wanted.symbol),
                           "", "", "name " + entry.library + " instead");
    }
    ret_entry = reinterpret_cast<emm_plugin_entry>(entry.address);
    return EMM_OK;
}

} // namespace emm::loader
