#include "serve/caches.h"

#include "catch.h"

#include <map>
#include <string>
#include <vector>

using namespace emm::run;

// An object of a stand-in for the interpreter: its attributes and items, and the result of a call.
struct _object {
    std::string name;
    std::map<std::string, PyObject *> members;
    PyObject *answer = nullptr; // NULL: an error
    int references = 0;
};

namespace {

PyObject *imported_modules;
std::vector<std::string> calls;
bool has_error;

PyObject *with_reference(PyObject *object) {
    has_error = has_error || !object;
    if (object) {
        object->references++;
    }
    return object;
}

PyObject *member(PyObject *object, const char *name) {
    const auto found = object->members.find(name);
    return with_reference(found == object->members.end() ? nullptr : found->second);
}

PyObject *call(PyObject *function, PyObject *) {
    CHECK_FALSE(has_error);
    calls.push_back(function->name);
    return with_reference(function->answer);
}

Python stand_in() {
    Python python = {};
    python.PyImport_GetModuleDict = [] { return imported_modules; };
    python.PyMapping_GetItemString = &member;
    python.PyObject_GetAttrString = &member;
    python.PyObject_CallObject = &call;
    python.PyErr_Clear = [] { has_error = false; };
    python.Py_IncRef = [](PyObject *object) { object->references++; };
    python.Py_DecRef = [](PyObject *object) { object->references--; };
    return python;
}

// A program that has imported both.
struct Program {
    PyObject none{"None", {}};
    PyObject empty_cache{"empty_cache", {}, &none};
    PyObject torch_names{"torch.cuda.__dict__", {{"empty_cache", &empty_cache}}};
    PyObject torch{"torch.cuda", {{"__dict__", &torch_names}}};
    PyObject free_device{"free device blocks", {}, &none},
        free_pinned{"free pinned blocks", {}, &none};
    PyObject device_pool{"pool", {{"free_all_blocks", &free_device}}};
    PyObject pinned_pool{"pool", {{"free_all_blocks", &free_pinned}}};
    PyObject get_device{"get device pool", {}, &device_pool},
        get_pinned{"get pinned pool", {}, &pinned_pool};
    PyObject cupy_names{"cupy.__dict__",
                        {{"get_default_memory_pool", &get_device},
                         {"get_default_pinned_memory_pool", &get_pinned}}};
    PyObject cupy{"cupy", {{"__dict__", &cupy_names}}};
    PyObject modules{"sys.modules", {{"torch.cuda", &torch}, {"cupy", &cupy}}};

    std::vector<std::string> asked(Caches caches, Memory memory) {
        imported_modules = &modules;
        calls.clear();
        has_error = false;
        release_caches(stand_in(), caches, memory);
        CHECK_FALSE(has_error);
        for (const PyObject *object :
             {&none, &empty_cache, &torch_names, &torch, &free_device, &free_pinned, &device_pool,
              &pinned_pool, &get_device, &get_pinned, &cupy_names, &cupy, &modules}) {
            CHECK(object->references == 0);
        }
        return calls;
    }
};

using Names = std::vector<std::string>;

} // namespace

TEST_CASE("a cache is named after its module") {
    CHECK(cache_named("torch") == torch_cache);
    CHECK(cache_named("cupy") == cupy_cache);
    CHECK(cache_named("tensorflow") == no_caches);
    CHECK(cache_named("") == no_caches);
}

TEST_CASE("caches are asked for memory of the kind that has run out") {
    Program program;
    CHECK(program.asked(torch_cache | cupy_cache, Memory::device) ==
          Names{"empty_cache", "get device pool", "free device blocks"});
    CHECK(program.asked(torch_cache | cupy_cache, Memory::pinned) ==
          Names{"get pinned pool", "free pinned blocks"});
    CHECK(program.asked(torch_cache, Memory::device) == Names{"empty_cache"});
    CHECK(program.asked(torch_cache, Memory::pinned).empty());
}

TEST_CASE("a module that is not imported is not asked") {
    Program program;
    program.modules.members.erase("torch.cuda");
    CHECK(program.asked(torch_cache | cupy_cache, Memory::device) ==
          Names{"get device pool", "free device blocks"});
    program.modules.members.clear();
    CHECK(program.asked(torch_cache | cupy_cache, Memory::device).empty());
}

TEST_CASE("a cache that fails leaves no error and no reference behind") {
    Program program;
    program.empty_cache.answer = nullptr;
    program.get_device.answer = nullptr;
    CHECK(program.asked(torch_cache | cupy_cache, Memory::device) ==
          Names{"empty_cache", "get device pool"});
    program.torch_names.members.clear();
    program.device_pool.members.clear();
    CHECK(program.asked(torch_cache | cupy_cache, Memory::device) == Names{"get device pool"});
}
