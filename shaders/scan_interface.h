/* SPDX-License-Identifier: MIT
 * What C and the scan shaders agree on: values of their specialisation constants. */
#ifndef STILL_SCAN_INTERFACE_H
#define STILL_SCAN_INTERFACE_H

/* scan_features: the map, and whose features. */
#define STILL_MAP_HEDGEHOG 0 /* [softmax(x A), softmax(-x A)] */
#define STILL_MAP_RELU 1     /* relu(x A + b) */
#define STILL_MAP_SOFTMAX 2  /* softmax(x) */
#define STILL_SIDE_QUERY 0   /* of the new queries */
#define STILL_SIDE_KEY 1     /* of the new keys */
#define STILL_SIDE_LEAVING 2 /* of the keys that leave the window while the new tokens come in */
/* Tokens of a workgroup of scan_features, and of a step of linear_scan: STILL_GROUP / 16. */
#define STILL_SCAN_ROWS 8

/* One more value of attention_push.lower: nothing is attended to exactly. */
#define STILL_LOWER_NONE 3u

/* scan_merge */
#define STILL_MERGE_HALVES 0 /* out / 2 + linear / 2 */
#define STILL_MERGE_RATIO 1  /* linear / its normalizer */

#endif
