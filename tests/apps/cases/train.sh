# what: bench/jobs/train.py: ImageFolder, 2 workers, 2 epochs, PIL and cv2, checksums of all pixels
#   and the loss
# needs: module torch; module torchvision; module cv2; module PIL
# heavy: yes
# prepare
"$PYTHON" - <<'END'
import os
import cv2
import numpy as np
for n in range(24):
    os.makedirs(f"{os.environ['DATA']}/train/class_{n % 3}", exist_ok=True)
    pixels = np.random.default_rng(n).integers(0, 255, (90, 100, 3), np.uint8)
    cv2.imwrite(f"{os.environ['DATA']}/train/class_{n % 3}/{n}.jpg", pixels)
END
# run
for loader in pil cv2; do
  "$PYTHON" "$TRAIN" --data "$DATA/train" --epochs 2 --workers 2 --loader $loader |
    sed -E 's/[0-9.]+ s  [0-9.]+ samples.s//' || exit 1
done
