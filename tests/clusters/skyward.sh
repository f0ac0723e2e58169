#!/bin/bash
# Our plugin and Skyward's own, with a released wheel of Skyward: skyward.sh PYTHON VERSION REPOSITORY CUMUX FOLDER
# Skyward's own plugin has fixed directories, so this runs in a mount namespace in which nobody else uses them.
set -eux
if [ "${CUMUX_STORY_INSIDE-}" != 1 ]; then
    CUMUX_STORY_INSIDE=1 exec unshare --mount "$0" "$@"
fi
python=$1 version=$2 repository=$3 cumux=$4 folder=$5
mount --make-rprivate /
mount --bind "$folder" /mnt
mount -t tmpfs tmpfs /tmp
mount -t tmpfs tmpfs /var/log
mkdir -p "$folder"
mount --move /mnt "$folder"

"$cumux" install --prefix "$folder/cumux" --drop-in >/dev/null
"$python" -m venv "$folder/environment"
cp -r "$repository/integrations/skyward" "$folder/source"
"$folder/environment/bin/pip" install --quiet --disable-pip-version-check "skyward==$version" setuptools
"$folder/environment/bin/pip" install --quiet --disable-pip-version-check --no-build-isolation --no-deps "$folder/source"
export PATH="$folder/cumux/bin:$folder/environment/bin:/usr/bin:/bin" CUMUX_DEVICE=sim:h200
cd "$folder/source"
python -m unittest discover --verbose tests
