// The C++ runtime inside a plugin has thread-local storage of its own, for exceptions. One
// initial-exec variable beside it has the dynamic linker set that aside with each thread: else a
// thread's first exception takes memory for it, and without any the C library ends the process. Not
// in plugins that link libraries with much thread-local storage (rmm): there is little room for it,
// and they would not load.
namespace {

[[gnu::tls_model("initial-exec")]] constinit thread_local volatile bool is_set_aside = false;

[[gnu::constructor]] void set_aside() {
    is_set_aside = true;
}

} // namespace
