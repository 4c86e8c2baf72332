/*
 * emm/status.h: the status codes of emm, for applications and plugins alike. C99; compiles alone.
 *
 * Zero is success, a positive code is success with a notice, a negative code is an error. Codes are
 * never renumbered and never reused; new codes are appended.
 */
#ifndef EMM_STATUS_H
#define EMM_STATUS_H

#include <stdint.h>

#if defined(__GNUC__)
#define EMM_API __attribute__((visibility("default")))
#else
#define EMM_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef int32_t emm_status;

#define EMM_OK 0

/* Notices: the call succeeded, and the caller should know something about it. */
#define EMM_S_IGNORED 1 /* a choice made elsewhere outranks this one, which had no effect */

/* Errors. */
#define EMM_E_INVALID_VALUE (-1)      /* an argument is NULL, out of range or malformed */
#define EMM_E_OUT_OF_MEMORY (-2)      /* device memory, or the plugin's limit on it, is exhausted */
#define EMM_E_OUT_OF_HOST_MEMORY (-3) /* host memory is exhausted, pinned or ordinary */
#define EMM_E_NOT_SUPPORTED (-4)      /* the plugin, the driver or the device cannot do this */
#define EMM_E_BUSY (-5)               /* too late or too early: another action is in progress */
#define EMM_E_RETIRED (-6)            /* the context was retired, or died */
#define EMM_E_FORKED (-7)             /* forked child of a process that had loaded the driver */
#define EMM_E_DEVICE_LOST (-8)        /* the device has a sticky error; no memory is reused */
#define EMM_E_SHUT_DOWN (-9)          /* after emm_shutdown, or after the driver has gone */
#define EMM_E_DRIVER (-10)            /* a driver call failed; see the driver's own result */
#define EMM_E_NO_DRIVER (-11)         /* no usable CUDA driver: missing, too old, no device */
#define EMM_E_NO_CONTEXT (-12)        /* the calling thread has no current CUDA context */
#define EMM_E_NOT_OWNED (-13)         /* the address is not a live allocation of this manager */
#define EMM_E_CAPTURING (-14)         /* not possible while a stream captures */
#define EMM_E_PLUGIN_SPEC (-15)       /* the spec or an option does not parse or is unknown */
#define EMM_E_PLUGIN_NOT_FOUND (-16)  /* no file has the plugin's name */
#define EMM_E_PLUGIN_UNTRUSTED (-17)  /* another user could have written the plugin file */
#define EMM_E_PLUGIN_UNLOADABLE (-18) /* not a loadable plugin: ELF, dlopen or entry symbol */
#define EMM_E_PLUGIN_VERSION (-19)    /* the plugin speaks another major version of the ABI */
#define EMM_E_PLUGIN_INVALID (-20)    /* the plugin's table breaks the ABI's rules */
#define EMM_E_PLUGIN_FAILED (-21)     /* the plugin failed without a better code of its own */
#define EMM_E_PLUGIN_EXCEPTION (-22)  /* a C++ exception left the plugin */
#define EMM_E_REENTERED (-23)         /* called from within a call of emm that forbids this */
#define EMM_E_ALREADY_FREED (-24)     /* the memory behind the handle has been freed explicitly */
#define EMM_E_PAUSED (-25)            /* the pool is paused: resume it first */

/*
 * One sentence in English for a code; for a code unknown to this version, a sentence that says so.
 * Never NULL; static storage. Any thread. The function is in libemm, for applications: plugins link
 * no libemm.
 */
EMM_API const char *emm_status_text(emm_status status);

/* The constant's name, such as "EMM_E_BUSY". For a code unknown to this version: "EMM_E_?", or
 * "EMM_S_?" for a notice. Otherwise as emm_status_text. */
EMM_API const char *emm_status_name(emm_status status);

#ifdef __cplusplus
}
#endif

#endif
