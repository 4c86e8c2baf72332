#include "check.h"

#include <pthread.h>
#include <stdlib.h>

/* The compiler chooses the order in which a call's arguments are evaluated: the text may be taken
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

static void names_of_codes(void) {
    CHECK(strcmp(emm_status_name(EMM_OK), "EMM_OK") == 0);
    CHECK(strcmp(emm_status_name(EMM_S_IGNORED), "EMM_S_IGNORED") == 0);
    CHECK(strcmp(emm_status_name(EMM_E_ALREADY_FREED), "EMM_E_ALREADY_FREED") == 0);
    CHECK(strcmp(emm_status_name(1000), "EMM_S_?") == 0);
    CHECK(strcmp(emm_status_name(-1000), "EMM_E_?") == 0);
    CHECK(strstr(emm_status_text(1000), "success, with a notice") != NULL);
    CHECK(strstr(emm_status_text(-1000), "an error unknown to this version") != NULL);
}

static void version_of_the_headers(void) {
    char text[32];
    snprintf(text, sizeof text, "%d.%d.%d", EMM_VERSION_MAJOR, EMM_VERSION_MINOR,
             EMM_VERSION_PATCH);
    CHECK(strcmp(text, emm_version()) == 0);
#if EMM_VERSION_NUMBER < 100 || EMM_VERSION_NUMBER >= (EMM_VERSION_MAJOR + 1) * 10000
    CHECK(!"EMM_VERSION_NUMBER orders versions");
#endif
}

const test error_tests[] = {
    {"a status code has the name of its constant, and an unknown one says error or notice",
     names_of_codes},
    {"the headers' version is that of the library", version_of_the_headers},
    {"a text that was taken before a call failed says what that call has to say",
     text_beside_failing_call},
    {NULL, NULL}};
