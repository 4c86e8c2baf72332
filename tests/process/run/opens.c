// opens HOW NAME...: opens each library and prints the real path of the result.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void *opener(const char *name);

static void *plainly(const char *name) {
    return dlopen(name, RTLD_NOW | RTLD_LOCAL);
}

static void *with_deepbind(const char *name) {
    return dlopen(name, RTLD_NOW | RTLD_DEEPBIND);
}

static void *in_new_namespace(const char *name) {
    return dlmopen(LM_ID_NEWLM, name, RTLD_NOW);
}

static void *by_stand_in(const char *name) {
    opener *open_library = NULL;
    *(void **)&open_library = dlsym(RTLD_DEFAULT, "stand_in_open");
    return open_library ? open_library(name) : NULL;
}

static opener *find_opener(const char *how) {
    if (strcmp(how, "deepbind") == 0) {
        return with_deepbind;
    }
    if (strcmp(how, "namespace") == 0) {
        return in_new_namespace;
    }
    if (strcmp(how, "interposer") == 0) {
        return by_stand_in;
    }
    return plainly;
}

static void tell(void *handle) {
    struct link_map *map = NULL;
    if (!handle || dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0) {
        printf("%s\n", dlerror());
        return;
    }
    char *real = realpath(map->l_name, NULL);
    printf("%s\n", real ? real : map->l_name);
    free(real);
}

int main(int count, char **words) {
    opener *const open_library = count > 1 ? find_opener(words[1]) : NULL;
    for (int i = 2; i < count && open_library; i++) {
        tell(open_library(words[i]));
    }
    return open_library ? 0 : 1;
}
