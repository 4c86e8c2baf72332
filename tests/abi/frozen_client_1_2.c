/* frozen_client.c with the calls that came with 1.2: an older plugin lacks their slots. */
#define main call_older_slots
#include "frozen_client.c"
#undef main

int main(int argc, char **argv) {
    emm_context *context = NULL;
    emm_plugin_info info = {.struct_size = sizeof info};
    failed = call_older_slots(argc, argv);
    if (emm_context_for_device(0, &context) < EMM_OK || emm_get_plugin(&info) < EMM_OK) {
        fprintf(stderr, "the frozen plugin: %s\n", emm_last_error()->text);
        return 1;
    }
    if (info.abi_minor >= 2) {
        expect(emm_context_pause(context, EMM_PAUSE_KEEP, NULL), "slot pause");
        expect(emm_context_resume(context, 0), "slot resume");
        expect(emm_context_set_option(context, "changes", "2"), "slot set_option");
        expect(emm_context_reset_peaks(context), "slot reset_peaks");
    } else if (emm_context_pause(context, EMM_PAUSE_KEEP, NULL) != EMM_E_NOT_SUPPORTED ||
               emm_context_resume(context, 0) != EMM_OK ||
               emm_context_set_option(context, "changes", "2") >= EMM_OK ||
               emm_context_reset_peaks(context) != EMM_E_NOT_SUPPORTED) {
        fprintf(stderr, "expected a plugin of 1.%u to pause nothing, change no option or peak\n",
                info.abi_minor);
        failed = 1;
    }
    return failed;
}
