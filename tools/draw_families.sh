#!/bin/sh
# Draw docs/images/family-NAME.png for every MuJoCo family, or for those named: tools/draw_families.sh goal-ant
# Pictures repeat exactly on one machine; another graphics driver may shade a pixel differently.
set -eu
cd "$(dirname "$0")/.."
# goal-ant-no-reset looks like goal-ant.
FAMILIES="random-hopper random-walker random-reacher directional-hopper directional-half-cheetah
signed-half-cheetah goal-ant goal-ant-right goal-ant-left fetch-reach"
for family in ${*:-$FAMILIES}; do
    "${EPG:-.venv/bin/epg}" tasks "$family" --picture "${PICTURES:-docs/images}/family-$family.png"
done
