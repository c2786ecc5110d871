/* SPDX-License-Identifier: MIT
 * The history of a run as CSV and as a picture. */
#include "linearize/trainer.h"

#include "base/files.h"
#include "base/memory.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char header[] = "step,tokens,seconds,rate,loss,gradient_norm,validation_loss\n";
enum { FILE_LIMIT = 256 << 20 };

still_status metrics_add(metrics_history *h, const metrics_row *row) {
  if (h->count == h->capacity) {
    const size_t capacity = 2 * h->capacity + 256;
    STILL_TRY(STILL_REALLOC(&h->rows, capacity, "metrics"));
    h->capacity = capacity;
  }
  h->rows[h->count++] = *row;
  return STILL_OK;
}

static still_status write_text(still_output *out, const char *text) {
  return still_output_write(out, text, strlen(text));
}

still_status metrics_write(const metrics_history *h, const char *path) {
  still_output out;
  STILL_TRY(still_output_open(&out, path));
  still_status status = write_text(&out, header);
  for (size_t i = 0; !status && i < h->count; i++) {
    const metrics_row *r = &h->rows[i];
    char line[256], validation[32] = "";
    if (!isnan(r->validation)) snprintf(validation, sizeof validation, "%.9g", r->validation);
    snprintf(line, sizeof line, "%" PRId64 ",%" PRIu64 ",%.3f,%.6g,%.9g,%.6g,%s\n", r->step,
             r->tokens, r->seconds, r->rate, r->loss, r->norm, validation);
    status = write_text(&out, line);
  }
  if (!status) return still_output_commit(&out);
  still_output_abandon(&out);
  return status;
}

static still_status parse_line(metrics_history *h, const char *line, int64_t last_step) {
  metrics_row r = {.validation = NAN};
  const int fields = sscanf(line, "%" SCNd64 ",%" SCNu64 ",%lf,%lf,%lf,%lf,%lf", &r.step, &r.tokens,
                            &r.seconds, &r.rate, &r.loss, &r.norm, &r.validation);
  return fields >= 6 && r.step <= last_step ? metrics_add(h, &r) : STILL_OK;
}

still_status metrics_read(metrics_history *h, const char *path, int64_t last_step) {
  char *text;
  size_t bytes;
  if (!still_path_exists(path)) return STILL_OK;
  STILL_TRY(still_read_text(path, FILE_LIMIT, &text, &bytes));
  still_status status = STILL_OK;
  char *rest = NULL;
  for (char *line = strtok_r(text, "\n", &rest); line && !status;
       line = strtok_r(NULL, "\n", &rest))
    status = parse_line(h, line, last_step);
  still_free(text);
  return status;
}

/* ---- picture ---- */

enum { WIDTH = 720, HEIGHT = 400, LEFT = 70, RIGHT = 20, TOP = 40, BOTTOM = 50, TICKS = 5 };

typedef struct curve_scale {
  double last_step, low, high; /* of the logarithm of the loss */
} curve_scale;

static curve_scale scale_of(const metrics_history *h) {
  curve_scale s = {1, INFINITY, -INFINITY};
  for (size_t i = 0; i < h->count; i++) {
    const double values[] = {h->rows[i].loss, h->rows[i].validation};
    for (int j = 0; j < 2; j++)
      if (values[j] > 0 && isfinite(values[j]))
        s.low = fmin(s.low, log10(values[j])), s.high = fmax(s.high, log10(values[j]));
    s.last_step = fmax(s.last_step, (double)h->rows[i].step);
  }
  if (!(s.high > s.low)) s.low = isfinite(s.low) ? s.low - 0.5 : 0, s.high = s.low + 1;
  return s;
}

static double x_of(const curve_scale *s, double step) {
  return LEFT + (WIDTH - LEFT - RIGHT) * step / s->last_step;
}

static double y_of(const curve_scale *s, double loss) {
  return TOP + (HEIGHT - TOP - BOTTOM) * (s->high - log10(loss)) / (s->high - s->low);
}

static still_status draw_line(still_output *out, const metrics_history *h, const curve_scale *s,
                              bool validation) {
  char text[160];
  snprintf(text, sizeof text, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"%s\" points=\"",
           validation ? "#c2410c" : "#94a3b8", validation ? "2" : "1");
  STILL_TRY(write_text(out, text));
  for (size_t i = 0; i < h->count; i++) {
    const double value = validation ? h->rows[i].validation : h->rows[i].loss;
    if (!(value > 0) || !isfinite(value)) continue;
    snprintf(text, sizeof text, "%.1f,%.1f ", x_of(s, (double)h->rows[i].step), y_of(s, value));
    STILL_TRY(write_text(out, text));
  }
  return write_text(out, "\"/>\n");
}

static still_status draw_axes(still_output *out, const curve_scale *s, still_stage stage) {
  char text[400];
  snprintf(text, sizeof text,
           "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
           "font-family=\"sans-serif\" "
           "font-size=\"12\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n"
           "<text x=\"%d\" y=\"22\">%s: training loss (grey), validation loss (orange), "
           "logarithmic</text>\n",
           WIDTH, HEIGHT, LEFT,
           stage == STILL_STAGE_LOW_RANK ? "low-rank linearization" : "attention transfer");
  STILL_TRY(write_text(out, text));
  for (int i = 0; i < TICKS; i++) {
    const double part = (double)i / (TICKS - 1), level = s->low + part * (s->high - s->low);
    const double y = y_of(s, pow(10, level)), x = x_of(s, part * s->last_step);
    snprintf(text, sizeof text,
             "<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#e2e8f0\"/><text x=\"%d\" "
             "y=\"%.1f\" "
             "text-anchor=\"end\">%.3g</text><text x=\"%.1f\" y=\"%d\" "
             "text-anchor=\"middle\">%.0f</text>\n",
             LEFT, WIDTH - RIGHT, y, y, LEFT - 8, y + 4, pow(10, level), x, HEIGHT - BOTTOM + 20,
             part * s->last_step);
    STILL_TRY(write_text(out, text));
  }
  snprintf(text, sizeof text, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">step</text>\n",
           (WIDTH + LEFT - RIGHT) / 2, HEIGHT - 10);
  return write_text(out, text);
}

still_status metrics_draw(const metrics_history *h, const char *path, still_stage stage) {
  const curve_scale s = scale_of(h);
  still_output out;
  STILL_TRY(still_output_open(&out, path));
  still_status status = draw_axes(&out, &s, stage);
  if (!status) status = draw_line(&out, h, &s, false);
  if (!status) status = draw_line(&out, h, &s, true);
  if (!status) status = write_text(&out, "</svg>\n");
  if (!status) return still_output_commit(&out);
  still_output_abandon(&out);
  return status;
}
