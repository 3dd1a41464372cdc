#!/bin/sh
# The code is there: the first documents, what to paste at Twilio, and a look at it all.
set -eu
cd "$(dirname "$0")/../.."
exec ./antwoord azure deployed
