#include <emm/emm.h>

#include <stdio.h>

int main(void) {
    emm_plugin_info plugin = {.struct_size = sizeof plugin};
    if (emm_get_plugin(&plugin) < EMM_OK) {
        fprintf(stderr, "%s\n", emm_last_error()->text);
        return 1;
    }
    printf("emm %s with %s\n", emm_version(), plugin.name);
    return 0;
}
