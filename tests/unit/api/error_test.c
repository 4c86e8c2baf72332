#include "check.h"

#include <pthread.h>
#include <stdlib.h>

/* The order in which a call's arguments are evaluated is the compiler's: the text may be taken
 * before the call beside it fails. */
static void *take_text_before_failing(void *unused) {
    char said[64];
    char *spec;
    const char *text = emm_last_error()->text;
    CHECK(strcmp(text, "no error") == 0);
    CHECK(emm_memfree(NULL, 0, 0, NULL) == EMM_E_INVALID_VALUE);
    CHECK(strcmp(text, "emm_memfree: context is NULL") == 0);
    snprintf(said, sizeof said, "%d %s", (int)emm_memalloc(NULL, 1, NULL, NULL),
             emm_last_error()->text);
    CHECK(strcmp(said, "-1 emm_memalloc: context is NULL") == 0);
    spec = calloc(1, 1 << 20);
    memset(spec, 'x', (1 << 20) - 1);
    CHECK(emm_set_plugin(spec) < EMM_OK);
    CHECK(strlen(text) > 1024 && strlen(text) <= 4096);
    CHECK(text == emm_last_error()->text);
    free(spec);
    return unused;
}

/* In a new thread, so that its first failure is among them. */
static void text_beside_failing_call(void) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, &take_text_before_failing, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
}

const test error_tests[] = {
    {"a text that was taken before a call failed says what that call has to say",
     text_beside_failing_call},
    {NULL, NULL}};
