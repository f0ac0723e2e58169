#!/bin/bash
# The .rpm made and installed with rpm's own tools, in a root of its own: rpm.sh REPOSITORY STAGED FOLDER
set -eux
repository=$1 staged=$2 folder=$3
apt-get update -qq
apt-get install -qq --yes --no-install-recommends rpm >/dev/null
rpmbuild -bb "$repository/packaging/rpm/cumux.spec" --define "cumux_version 0.1.0" --define "cumux_release 1" --define "staged $staged" \
    --define "_topdir $folder/rpm" --define "_rpmdir $folder/rpm/out"
package=$folder/rpm/out/$(uname -m)/cumux-0.1.0-1.$(uname -m).rpm
rpm -qlp "$package" | grep -qx /usr/lib/cumux/libcuda.so.1
! rpm -qp --provides "$package" | grep libcuda
rpm -qcp "$package" | grep -qx /etc/default/cumux
mkdir -p "$folder/root"
rpm -i --nodeps --noscripts --root "$folder/root" "$package"
"$folder/root/usr/bin/cumux" --version
echo "the package was made and installed"
