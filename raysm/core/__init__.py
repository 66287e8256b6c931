"""One job, from its request to its result; it knows no feature.

``request`` describes and checks it, ``client`` sends and follows it, and ``protocol`` is what the
laptop and the instances agree on.
"""

import os

import raysm

# An instance has unpacked only what it runs; the client follows from the zip.
__path__.extend(os.path.join(folder, "core") for folder in raysm.__path__[1:])
