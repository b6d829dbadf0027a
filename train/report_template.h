/* report_template.h: scripts/report.html as the Makefile put it into the program. */
#ifndef TRAIN_REPORT_TEMPLATE_H
#define TRAIN_REPORT_TEMPLATE_H

#include <stddef.h>

extern const unsigned char report_template[]; /* ends in a 0 that is not counted */
extern const size_t report_template_bytes;

#endif
