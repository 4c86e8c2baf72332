// metered_driver.cpp is linked to this library, so that it needs a library of this name. Under that
// name it finds the real driver at run time.
extern "C" __attribute__((visibility("default"))) int emmPeersNoDriver() {
    return 0;
}
