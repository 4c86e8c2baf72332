// Stands for the libstdc++.so.6 of another age, which a program has brought: the name, the first
// version, and no function that is of use here.
int old_runtime(void);

int old_runtime(void) {
    return 1;
}
