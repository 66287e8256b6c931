"""An S3 of which a bucket has more objects than anybody wants to list; it counts the lists."""

import datetime

WHEN = datetime.datetime.now(datetime.UTC)


class Crowd:
    """boto3's client of S3; all that is not of the bucket ``crowd`` another client does."""

    def __init__(self, count, behind=None, size=1):
        self.count = count
        self.size = size
        self.lists = 0
        self._behind = behind

    def __getattr__(self, name):
        return getattr(self._behind, name)

    def list_objects_v2(self, *, Bucket, Prefix, ContinuationToken="0"):  # noqa: N803
        if Bucket != "crowd":
            return self._behind.list_objects_v2(Bucket=Bucket, Prefix=Prefix)
        self.lists += 1
        begin, end = int(ContinuationToken), min(int(ContinuationToken) + 1000, self.count)
        keys = (f"{Prefix}{number:09}" for number in range(begin, end))
        contents = [
            {"Key": key, "Size": self.size, "ETag": '"e"', "LastModified": WHEN} for key in keys
        ]
        more = {"IsTruncated": True, "NextContinuationToken": str(end)} if end < self.count else {}
        return {"Contents": contents, **more}
